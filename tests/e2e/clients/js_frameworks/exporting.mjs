// What the scripts share: where to export, and which traces were made.
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { context, trace } from '@opentelemetry/api';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';

const { SVC, WRITE_KEY } = process.env;
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
export const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'client' }),
  spanProcessors: [started, new BatchSpanProcessor(exporter)],
});
export const contextManager = new AsyncLocalStorageContextManager().enable();
trace.setGlobalTracerProvider(provider);
context.setGlobalContextManager(contextManager);

export const done = async () => {
  await provider.forceFlush();
  await provider.shutdown();
  console.log(JSON.stringify([...traces]));
};
