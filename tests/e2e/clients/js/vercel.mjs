// The Vercel AI SDK: an agent that calls a tool and answers, then a stream; in both shapes of its telemetry.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { LegacyOpenTelemetry, OpenTelemetry } from '@ai-sdk/otel';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { trace, context } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { generateText, jsonSchema, registerTelemetry, stepCountIs, streamText, tool } from 'ai';

const { SVC, WRITE_KEY, MODELS, SESSION } = process.env;
const traces = new Set();
const seen = {
  onStart: (span) => traces.add(span.spanContext().traceId),
  onEnd() {},
  forceFlush: async () => {},
  shutdown: async () => {},
};
const exporter = new OTLPTraceExporter({
  url: `${SVC}/v1/traces`,
  headers: { Authorization: `Bearer ${WRITE_KEY}` },
});
const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'client' }),
  spanProcessors: [seen, new BatchSpanProcessor(exporter)],
});
trace.setGlobalTracerProvider(provider);
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
registerTelemetry(process.argv[2] === 'legacy' ? new LegacyOpenTelemetry() : new OpenTelemetry());

const model = createOpenAICompatible({ name: 'openai', baseURL: `${MODELS}/v1`, apiKey: 'none', includeUsage: true })(
  'gpt-4o',
);
const prompt = 'What is the weather in Paris?';
const telemetry = { isEnabled: true, functionId: 'forecaster', metadata: { sessionId: SESSION } };
const city = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
await generateText({
  model,
  prompt,
  tools: { get_weather: tool({ inputSchema: jsonSchema(city), execute: async () => 'sunny' }) },
  stopWhen: stepCountIs(3),
  experimental_telemetry: telemetry,
});
const stream = streamText({ model, prompt, experimental_telemetry: telemetry });
await stream.consumeStream();
await provider.forceFlush();
await provider.shutdown();
console.log(JSON.stringify([...traces]));
