// AI SDK, with the provider that CLIENT names: ai-sdk-openai or ai-sdk-open-responses.

import { createOpenAI } from '@ai-sdk/openai';
import { createOpenResponses } from '@ai-sdk/open-responses';
import { Output, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import * as flows from './flows.mjs';
import { API_KEY, BASE_URL, CITY, MODEL, ONE_CITY, WEATHER, holds, same, thrown } from './flows.mjs';

const isOpenAI = process.env.CLIENT === 'ai-sdk-openai';
const provider = isOpenAI
  ? createOpenAI({ baseURL: BASE_URL, apiKey: API_KEY })
  : createOpenResponses({ name: 'antiphon', url: `${BASE_URL}/responses`, apiKey: API_KEY });
const model = (name = MODEL) => (isOpenAI ? provider.responses(name) : provider(name));
const tools = {
  get_weather: tool({
    description: 'The weather of a city.',
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => WEATHER[city],
  }),
};
const City = z.object({ name: z.string(), population: z.number() });
/** What a place is. It has few words, as a small model with many says them for ever. */
const Place = z.object({ kind: z.enum(['city', 'river']), is_capital: z.boolean() });
const stopWhen = stepCountIs(4);
const say = (prompt, options) => generateText({ model: model(), prompt, ...options });

/** The text, the kinds of parts and the steps of a stream. */
async function streamed(prompt, options) {
  const stream = streamText({ model: model(), prompt, onError() {}, ...options });
  const kinds = [];
  for await (const part of stream.fullStream) {
    kinds.push(part.type);
    if (part.type === 'error') throw part.error;
  }
  return { text: await stream.text, kinds, steps: await stream.steps };
}

/** What is said after a first turn, whose messages are sent again. */
async function continued(first, options, then = 'Who am I?') {
  const begin = { role: 'user', content: first };
  const { response } = await generateText({ model: model(), messages: [begin], ...options });
  const messages = [begin, ...response.messages, { role: 'user', content: then }];
  return (await generateText({ model: model(), messages, ...options })).text;
}

const all = [
  ['answer', 'generate_text', async () => {
    const result = await say('Say hello.', { system: 'Be brief.' });
    same([result.text, result.finishReason], ['Hello from the script.', 'stop']);
    holds(result.usage.totalTokens > 0, 'no usage');
  }],
  ['answer', 'generate_text_with_every_option', async () => {
    const options = {
      store: false,
      reasoningEffort: 'low',
      reasoningSummary: 'auto',
      textVerbosity: 'low',
      parallelToolCalls: false,
      metadata: { a: 'b' },
      user: 'u',
      include: ['reasoning.encrypted_content'],
      promptCacheKey: 'k',
      safetyIdentifier: 's',
      serviceTier: 'auto',
      truncation: 'auto',
      instructions: 'Be nice.',
    };
    const { text } = await say('Say hello.', {
      temperature: 0.2,
      topP: 0.9,
      maxOutputTokens: 50,
      seed: 1,
      presencePenalty: 0.1,
      providerOptions: { openai: options, antiphon: options },
    });
    same(text, 'Hello from the script.');
  }],
  ['stream', 'stream_text', async () => {
    const { text, kinds } = await streamed('Say hello.');
    same(text, 'Hello from the script.');
    holds(kinds.filter(kind => kind === 'text-delta').length > 3, 'it came in one piece');
  }],
  ['tools', 'tool_loop', async () => {
    const result = await say('Weather in Paris and Oslo?', { tools, stopWhen });
    same([result.text, result.steps.length], [flows.TWO_CITIES, 2]);
  }],
  ['tools', 'streamed_tool_loop', async () => {
    const { text, steps } = await streamed('Weather in Paris?', { tools, stopWhen });
    same([text, steps.length], [ONE_CITY, 2]);
  }],
  ['tools', 'named_tool', async () => {
    const toolChoice = { type: 'tool', toolName: 'get_weather' };
    const result = await say('Weather in Paris?', { tools, toolChoice });
    same(result.toolCalls.map(call => call.input), [{ city: 'Paris' }]);
  }],
  ['structured', 'output_object', async () => {
    const result = await say('Describe Paris', { output: Output.object({ schema: City }) });
    same(result.output, CITY);
  }],
  ['structured', 'streamed_output_object', async () => {
    const output = Output.object({ schema: City });
    const stream = streamText({ model: model(), prompt: 'Describe Paris', output });
    let last;
    for await (const part of stream.partialOutputStream) last = part;
    same(last, CITY);
  }],
  ['turns', 'history_sent_again', async () => {
    same(await continued('I am Ada.'), 'You are Ada.');
  }],
  ['turns', 'history_with_tools_sent_again', async () => {
    same(await continued('I am Ada. Weather in Paris?', { tools, stopWhen }), 'You are Ada.');
  }],
  ['turns', 'reasoning_sent_again', async () => {
    same(await continued('Think of a number.', {}, 'Which number?'), 'It was 17.');
  }],
  ['errors', 'unknown_model', async () => {
    const error = await thrown(() => say('Say hello.', { model: model('nobody') }));
    same(error.statusCode, 404);
  }],
  ['errors', 'input_that_is_too_long', async () => {
    const error = await thrown(() => say(flows.TOO_LONG, { model: model(flows.TINY) }));
    holds(error.responseBody.includes('context_length_exceeded'), error.responseBody);
  }],
  ['errors', 'busy_server', async () => {
    same((await say('Be busy.')).text, 'At last.');
  }],
  ['errors', 'stream_that_fails', async () => {
    await thrown(() => streamed('Break off.'));
  }],
  ['errors', 'answer_that_fails', async () => {
    await thrown(() => say('Break off.', { maxRetries: 0 }));
  }],
  ['real', 'a_real_answer', async () => {
    holds((await streamed('Say hello.', { maxOutputTokens: 16 })).text, 'no text');
  }],
  ['real', 'a_real_object', async () => {
    const result = await say('What is Paris?', { output: Output.object({ schema: Place }) });
    holds(result.output.kind, 'no kind');
  }],
];

if (isOpenAI) {
  all.push(
    ['tools', 'custom_tool', async () => {
      const calculator = provider.tools.customTool({
        name: 'calculator',
        description: 'Calculates.',
        format: { type: 'grammar', syntax: 'lark', definition: 'start: /[a-z ]+/' },
        execute: async () => 'forty-two',
      });
      same((await say('Compute it.', { tools: { calculator }, stopWhen })).text, 'It is 42.');
    }],
    ['tools', 'tool_loop_of_a_reasoning_model_that_stores_nothing', async () => {
      const openai = { store: false, reasoningEffort: 'medium', forceReasoning: true };
      const options = { tools, stopWhen, providerOptions: { openai } };
      same((await say('Weather in Paris?', options)).text, ONE_CITY);
    }],
    ['turns', 'sealed_reasoning_sent_again', async () => {
      const openai = { store: false, forceReasoning: true };
      const options = { providerOptions: { openai } };
      same(await continued('Think of a number.', options, 'Which number?'), 'It was 17.');
    }],
    ['resume', 'previous_response_id', async () => {
      const first = await say('I am Ada.');
      const openai = { previousResponseId: first.providerMetadata.openai.responseId };
      same((await say('Who am I?', { providerOptions: { openai } })).text, 'You are Ada.');
    }],
    ['resume', 'conversation', async () => {
      const made = await fetch(`${BASE_URL}/conversations`, {
        method: 'POST',
        headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
        body: '{}',
      });
      const openai = { conversation: (await made.json()).id };
      await say('I am Ada.', { providerOptions: { openai } });
      same((await say('Who am I?', { providerOptions: { openai } })).text, 'You are Ada.');
    }],
  );
}

await flows.main(all);
