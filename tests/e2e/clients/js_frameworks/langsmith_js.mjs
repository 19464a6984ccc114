// LangSmith's SDK in OTel mode: a traced agent that calls a tool and answers.
import { done, provider } from './exporting.mjs';
import { Client } from 'langsmith';
import { initializeOTEL } from 'langsmith/experimental/otel/setup';
import { traceable } from 'langsmith/traceable';
import { wrapOpenAI } from 'langsmith/wrappers';
import OpenAI from 'openai';

const { MODELS, SESSION } = process.env;
process.env.LANGSMITH_TRACING = 'true';
process.env.LANGSMITH_TRACING_MODE = 'otel';
initializeOTEL({ globalTracerProvider: provider, skipGlobalContextManagerSetup: true });
const client = new Client({ apiKey: 'none' });
const metadata = { session_id: SESSION };
const openai = wrapOpenAI(new OpenAI({ baseURL: `${MODELS}/v1`, apiKey: 'none' }), { client, metadata });

const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const tools = [{ type: 'function', function: { name: 'get_weather', parameters } }];
const getWeather = traceable(async ({ city }) => 'sunny', {
  name: 'get_weather',
  run_type: 'tool',
  client,
  metadata,
});
const forecaster = traceable(
  async (question) => {
    const ask = async (messages) =>
      (await openai.chat.completions.create({ model: 'gpt-4o', messages, tools })).choices[0].message;
    const asked = { role: 'user', content: question };
    const turn = await ask([asked]);
    const [call] = turn.tool_calls;
    const content = await getWeather(JSON.parse(call.function.arguments));
    return (await ask([asked, turn, { role: 'tool', tool_call_id: call.id, content }])).content;
  },
  { name: 'forecaster', client, metadata },
);
await forecaster('What is the weather in Paris?');
await client.awaitPendingTraceBatches();
await done();
