// Sends one agent trace: node export.mjs http|proto URL TOKEN SESSION
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as ProtoExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { trace, context, SpanKind } from '@opentelemetry/api';

const [kind, url, token, session] = process.argv.slice(2);
const Exporter = kind === 'http' ? JsonExporter : ProtoExporter;
const exporter = new Exporter({
  url: `${url}/v1/traces`,
  headers: { Authorization: `Bearer ${token}` },
  compression: 'gzip',
});
const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'js-shop' }),
  spanProcessors: [new BatchSpanProcessor(exporter)],
});
const tracer = provider.getTracer('app', '1.0');
const root = tracer.startSpan('invoke_agent clerk', {
  attributes: { 'gen_ai.operation.name': 'invoke_agent', 'gen_ai.agent.name': 'clerk', 'session.id': session },
});
const chat = tracer.startSpan('chat gpt-4o-mini', {
  kind: SpanKind.CLIENT,
  attributes: {
    'gen_ai.operation.name': 'chat',
    'gen_ai.provider.name': 'openai',
    'gen_ai.request.model': 'gpt-4o-mini',
    'gen_ai.usage.input_tokens': 1000,
    'gen_ai.usage.output_tokens': 100,
    'session.id': session,
    'gen_ai.input.messages': JSON.stringify([{ role: 'user', parts: [{ type: 'text', content: 'grüße 🙂' }] }]),
  },
}, trace.setSpan(context.active(), root));
chat.end();
root.end();
await provider.forceFlush();
await provider.shutdown();
