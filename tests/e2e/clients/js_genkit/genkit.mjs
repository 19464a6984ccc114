// Genkit: a flow that generates with a tool, exported as OTLP.
import { openAI } from '@genkit-ai/compat-oai/openai';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { genkit, z } from 'genkit';
import { enableTelemetry, flushTracing } from 'genkit/tracing';

const { SVC, WRITE_KEY, MODELS } = process.env;
const traces = new Set();
const started = {
  onStart: (span) => traces.add(span.spanContext().traceId),
  onEnd() {},
  forceFlush: async () => {},
  shutdown: async () => {},
};
const exporter = new OTLPTraceExporter({
  url: `${SVC}/v1/traces`,
  headers: { Authorization: `Bearer ${WRITE_KEY}` },
});
enableTelemetry({ serviceName: 'client', spanProcessors: [started, new BatchSpanProcessor(exporter)] });

const ai = genkit({ plugins: [openAI({ apiKey: 'none', baseURL: `${MODELS}/v1` })] });
const getWeather = ai.defineTool(
  { name: 'get_weather', description: 'The weather in a city.', inputSchema: z.object({ city: z.string() }) },
  async () => 'sunny',
);
const forecaster = ai.defineFlow('forecaster', async (question) => {
  const { text } = await ai.generate({ model: openAI.model('gpt-4o'), prompt: question, tools: [getWeather] });
  return text;
});
await forecaster('What is the weather in Paris?');
await flushTracing();
console.log(JSON.stringify([...traces]));
