// OpenAI Agents SDK (JavaScript): runs, handoffs, conversations.

import { Agent, OpenAIResponsesModel, Runner, tool } from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';
import * as flows from './flows.mjs';
import { CITY, MODEL, ONE_CITY, WEATHER, holds, same, thrown } from './flows.mjs';

const client = new OpenAI({ baseURL: flows.BASE_URL, apiKey: flows.API_KEY });
const runner = new Runner({ tracingDisabled: true });
const weather = tool({
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => WEATHER[city],
});
const City = z.object({ name: z.string(), population: z.number() });
/** What a place is. It has few words, as a small model with many says them for ever. */
const Place = z.object({ kind: z.enum(['city', 'river']), is_capital: z.boolean() });

const agent = (options = {}, model = MODEL) =>
  new Agent({ name: 'Agent', model: new OpenAIResponsesModel(client, model), ...options });

async function streamed(asked, prompt) {
  const result = await runner.run(asked, prompt, { stream: true });
  const names = [];
  for await (const event of result) {
    if (event.type === 'run_item_stream_event') names.push(event.name);
  }
  await result.completed;
  return [result.finalOutput, names];
}

await flows.main([
  ['answer', 'run', async () => {
    const result = await runner.run(agent({ instructions: 'Be brief.' }), 'Say hello.');
    same(result.finalOutput, 'Hello from the script.');
  }],
  ['stream', 'streamed_run', async () => {
    const result = await runner.run(agent(), 'Say hello.', { stream: true });
    let text = '';
    for await (const piece of result.toTextStream()) text += piece;
    await result.completed;
    same([text, result.finalOutput], ['Hello from the script.', 'Hello from the script.']);
  }],
  ['tools', 'tool_loop', async () => {
    const result = await runner.run(agent({ tools: [weather] }), 'Weather in Paris and Oslo?');
    same([result.finalOutput, result.rawResponses.length], [flows.TWO_CITIES, 2]);
  }],
  ['tools', 'streamed_tool_loop', async () => {
    const [output, names] = await streamed(agent({ tools: [weather] }), 'Weather in Paris?');
    same(output, ONE_CITY);
    holds(names.includes('tool_called') && names.includes('tool_output'), names.join());
  }],
  ['tools', 'tool_loop_with_every_setting', async () => {
    const modelSettings = {
      temperature: 0.2,
      topP: 0.9,
      maxTokens: 50,
      truncation: 'auto',
      store: false,
      toolChoice: 'required',
      parallelToolCalls: false,
      reasoning: { effort: 'low', summary: 'auto' },
      text: { verbosity: 'low' },
      providerData: { include: ['reasoning.encrypted_content'], metadata: { a: 'b' } },
    };
    const asked = agent({ tools: [weather], modelSettings });
    same((await runner.run(asked, 'Weather in Paris?')).finalOutput, ONE_CITY);
  }],
  ['tools', 'handoff', async () => {
    const spanish = new Agent({
      name: 'spanish',
      model: new OpenAIResponsesModel(client, MODEL),
    });
    const triage = Agent.create({
      name: 'Triage',
      model: new OpenAIResponsesModel(client, MODEL),
      handoffs: [spanish],
    });
    const result = await runner.run(triage, 'Hola');
    same([result.lastAgent.name, result.finalOutput], ['spanish', 'Buenos dias.']);
  }],
  ['structured', 'output_type', async () => {
    const result = await runner.run(agent({ outputType: City }), 'Describe Paris');
    same(result.finalOutput, CITY);
  }],
  ['structured', 'streamed_output_type', async () => {
    const [output] = await streamed(agent({ outputType: City }), 'Describe Paris');
    same(output, CITY);
  }],
  ['turns', 'history_sent_again', async () => {
    const first = await runner.run(agent({ tools: [weather] }), 'I am Ada. Weather in Paris?');
    const history = [...first.history, { role: 'user', content: 'Who am I?' }];
    same((await runner.run(agent(), history)).finalOutput, 'You are Ada.');
  }],
  ['resume', 'previous_response_id', async () => {
    const first = await runner.run(agent(), 'I am Ada.');
    const second = await runner.run(agent(), 'Who am I?', {
      previousResponseId: first.lastResponseId,
    });
    same(second.finalOutput, 'You are Ada.');
  }],
  ['resume', 'conversation', async () => {
    const { id } = await client.conversations.create({});
    const asked = agent({ tools: [weather] });
    await runner.run(asked, 'I am Ada. Weather in Paris?', { conversationId: id });
    const result = await runner.run(asked, 'Who am I?', { conversationId: id });
    same(result.finalOutput, 'You are Ada.');
  }],
  ['errors', 'unknown_model', async () => {
    const error = await thrown(() => runner.run(agent({}, 'nobody'), 'Say hello.'));
    same(error.status, 404);
  }],
  ['errors', 'input_that_is_too_long', async () => {
    const error = await thrown(() => runner.run(agent({}, flows.TINY), flows.TOO_LONG));
    same(error.code, 'context_length_exceeded');
  }],
  ['errors', 'busy_server', async () => {
    same((await runner.run(agent(), 'Be busy.')).finalOutput, 'At last.');
  }],
  ['errors', 'stream_that_fails', async () => {
    await thrown(() => streamed(agent(), 'Break off.'));
  }],
  ['real', 'a_real_answer', async () => {
    const [output] = await streamed(agent({ modelSettings: { maxTokens: 400 } }), 'Say hello.');
    holds(output, 'no text');
  }],
  ['real', 'a_real_object', async () => {
    const result = await runner.run(agent({ outputType: Place }), 'What is Paris?');
    holds(result.finalOutput.kind, 'no kind');
  }],
]);
