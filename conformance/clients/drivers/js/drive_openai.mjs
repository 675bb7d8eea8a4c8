// openai (Node): raw calls, stream helpers, parsing, stored responses.

import OpenAI from 'openai';
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import * as flows from './flows.mjs';
import { CITY, MODEL, WEATHER, holds, same, thrown } from './flows.mjs';

const client = new OpenAI({ baseURL: flows.BASE_URL, apiKey: flows.API_KEY });
const responses = client.responses;
const City = z.object({ name: z.string(), population: z.number() });
const TOOL = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather of a city.',
  strict: true,
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  },
};

const calls = response => response.output.filter(item => item.type === 'function_call');
const results = response =>
  calls(response).map(call => ({
    type: 'function_call_output',
    call_id: call.call_id,
    output: WEATHER[JSON.parse(call.arguments).city],
  }));
const say = (input, options) => responses.create({ model: MODEL, input, ...options });

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

await flows.main([
  ['answer', 'create', async () => {
    same((await say('Say hello.')).output_text, 'Hello from the script.');
  }],
  ['answer', 'create_with_every_option', async () => {
    const response = await responses.create({
      model: MODEL,
      instructions: 'Be brief.',
      input: [
        { role: 'system', content: 'A note.' },
        { role: 'user', content: [{ type: 'input_text', text: 'Say hello.' }] },
      ],
      max_output_tokens: 64,
      metadata: { k: 'v' },
      temperature: 0.2,
      store: false,
      include: ['reasoning.encrypted_content'],
      reasoning: { effort: 'low', summary: 'auto' },
      text: { verbosity: 'low' },
    });
    same(response.output_text, 'Hello from the script.');
  }],
  ['answer', 'models', async () => {
    const listed = (await client.models.list()).data.map(model => model.id);
    holds(listed.includes(MODEL), `it is not listed: ${listed}`);
  }],
  ['answer', 'input_tokens', async () => {
    const counted = await responses.inputTokens.count({ model: MODEL, input: 'Say hello.' });
    same(counted.input_tokens, (await say('Say hello.')).usage.input_tokens);
  }],
  ['stream', 'raw_stream', async () => {
    const events = await all(await say('Say hello.', { stream: true }));
    same(events.map(event => event.sequence_number), [...events.keys()]);
    same(events.at(-1).type, 'response.completed');
    const deltas = events.filter(event => event.type === 'response.output_text.delta');
    same(deltas.map(event => event.delta).join(''), 'Hello from the script.');
  }],
  ['stream', 'stream_helper', async () => {
    const stream = responses.stream({ model: MODEL, input: 'I am Ada.' });
    let text = '';
    stream.on('response.output_text.delta', event => (text += event.delta));
    const final = await stream.finalResponse();
    same([text, final.output_text], ['Hello Ada.', 'Hello Ada.']);
    same(final.output[0].content[0].text, 'A name.');
  }],
  ['tools', 'tool_loop', async () => {
    const input = [{ role: 'user', content: 'Weather in Paris and Oslo?' }];
    const first = await say(input, { tools: [TOOL] });
    same(calls(first).length, 2);
    const second = await say([...input, ...first.output, ...results(first)], { tools: [TOOL] });
    same(second.output_text, flows.TWO_CITIES);
  }],
  ['tools', 'tool_loop_that_stores_nothing', async () => {
    const options = { tools: [TOOL], store: false, include: ['reasoning.encrypted_content'] };
    const input = [{ role: 'user', content: 'Weather in Paris?' }];
    const first = await say(input, options);
    const second = await say([...input, ...first.output, ...results(first)], options);
    same(second.output_text, flows.ONE_CITY);
  }],
  ['tools', 'streamed_tool_loop', async () => {
    const asked = { model: MODEL, tools: [TOOL] };
    const first = await responses.stream({ ...asked, input: 'Weather in Paris?' }).finalResponse();
    const second = await responses
      .stream({ ...asked, input: results(first), previous_response_id: first.id })
      .finalResponse();
    same(second.output_text, flows.ONE_CITY);
  }],
  ['tools', 'parsed_tool_call', async () => {
    const parameters = z.object({ city: z.string() });
    const response = await responses.parse({
      model: MODEL,
      input: 'Weather in Paris?',
      tools: [zodResponsesFunction({ name: 'get_weather', parameters })],
    });
    same(calls(response)[0].parsed_arguments, { city: 'Paris' });
  }],
  ['structured', 'parse', async () => {
    const response = await responses.parse({
      model: MODEL,
      input: 'Describe Paris',
      text: { format: zodTextFormat(City, 'city') },
    });
    same(response.output_parsed, CITY);
  }],
  ['structured', 'parsed_stream', async () => {
    const stream = responses.stream({
      model: MODEL,
      input: 'Describe Paris',
      text: { format: zodTextFormat(City, 'city') },
    });
    same((await stream.finalResponse()).output_parsed, CITY);
  }],
  ['turns', 'history_sent_again', async () => {
    const input = [{ role: 'user', content: 'I am Ada.' }];
    const first = await say(input);
    const second = await say([...input, ...first.output, { role: 'user', content: 'Who am I?' }]);
    same(second.output_text, 'You are Ada.');
  }],
  ['resume', 'previous_response_id', async () => {
    const first = await say('I am Ada.');
    const second = await say('Who am I?', { previous_response_id: first.id });
    same(second.output_text, 'You are Ada.');
  }],
  ['resume', 'conversation', async () => {
    const { id } = await client.conversations.create({});
    await say('I am Ada.', { conversation: id });
    same((await say('Who am I?', { conversation: id })).output_text, 'You are Ada.');
  }],
  ['resume', 'stream_picked_up', async () => {
    const seen = [];
    const stream = await say('Count slowly.', { background: true, stream: true });
    for await (const event of stream) {
      seen.push(event);
      if (event.type === 'response.output_text.delta') break;
    }
    const { id } = seen[0].response;
    const starting_after = seen.at(-1).sequence_number;
    seen.push(...(await all(await responses.retrieve(id, { stream: true, starting_after }))));
    same(seen.map(event => event.sequence_number), [...seen.keys()]);
    const deltas = seen.filter(event => event.type === 'response.output_text.delta');
    const text = deltas.map(event => event.delta).join('');
    same(text, 'one two three four five six seven eight nine ten');
    const helper = responses.stream({ response_id: id, starting_after: 3 });
    same((await helper.finalResponse()).output_text, text);
  }],
  ['resume', 'stored_response', async () => {
    const { id } = await say('Say hello.');
    same((await responses.retrieve(id)).output_text, 'Hello from the script.');
    const items = await all(responses.inputItems.list(id, { limit: 5 }));
    same(items.map(item => item.type), ['message']);
    await responses.delete(id);
    same((await thrown(() => responses.retrieve(id))).status, 404);
  }],
  ['resume', 'cancelled_in_the_background', async () => {
    const { id } = await say('Count slowly.', { background: true });
    same((await responses.cancel(id)).status, 'cancelled');
  }],
  ['errors', 'wrong_key', async () => {
    const other = new OpenAI({ baseURL: flows.BASE_URL, apiKey: 'wrong' });
    same((await thrown(() => other.models.list())).code, 'invalid_api_key');
  }],
  ['errors', 'unknown_model', async () => {
    const error = await thrown(() => say('Say hello.', { model: 'nobody' }));
    same([error.status, error.code], [404, 'model_not_found']);
  }],
  ['errors', 'wrong_value', async () => {
    const error = await thrown(() => say('Say hello.', { temperature: 9 }));
    same([error.status, error.param], [400, 'temperature']);
  }],
  ['errors', 'input_that_is_too_long', async () => {
    const error = await thrown(() => say(flows.TOO_LONG, { model: flows.TINY }));
    same(error.code, 'context_length_exceeded');
  }],
  ['errors', 'busy_server', async () => {
    same((await say('Be busy.')).output_text, 'At last.');
  }],
  ['errors', 'stream_that_fails', async () => {
    const error = await thrown(async () => all(await say('Break off.', { stream: true })));
    same(error.code, 'server_error');
    await thrown(() => responses.stream({ model: MODEL, input: 'Break off.' }).finalResponse());
  }],
  ['real', 'a_real_answer', async () => {
    const stream = responses.stream({ model: MODEL, input: 'Say hello.', max_output_tokens: 16 });
    holds((await stream.finalResponse()).output_text, 'no text');
  }],
  ['real', 'a_real_call', async () => {
    const options = { tools: [TOOL], tool_choice: 'required', parallel_tool_calls: false };
    const [call] = calls(await say('Weather in Paris?', options));
    same(Object.keys(JSON.parse(call.arguments)), ['city']);
  }],
]);
