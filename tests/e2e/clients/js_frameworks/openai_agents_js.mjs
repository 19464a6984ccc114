// The OpenAI Agents SDK over OpenInference's instrumentation of OpenAI's client.
import { contextManager, done, provider } from './exporting.mjs';
import { setSession } from '@arizeai/openinference-core';
import { OpenAIInstrumentation } from '@arizeai/openinference-instrumentation-openai';
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';

const { MODELS, SESSION } = process.env;
setTracingDisabled(true);
new OpenAIInstrumentation({ tracerProvider: provider }).manuallyInstrument(OpenAI);
const getWeather = tool({
  name: 'get_weather',
  description: 'The weather in a city.',
  parameters: z.object({ city: z.string() }),
  execute: async () => 'sunny',
});
const agent = new Agent({ name: 'forecaster', instructions: 'Be brief.', model: 'gpt-4o', tools: [getWeather] });
const openAIClient = new OpenAI({ baseURL: `${MODELS}/v1`, apiKey: 'none' });
const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient }) });
await contextManager.with(setSession(contextManager.active(), { sessionId: SESSION }), () =>
  runner.run(agent, 'What is the weather in Paris?'),
);
await done();
