// Mastra: an agent that calls a tool and answers, exported by its own exporter.
import { Agent } from '@mastra/core/agent';
import { Mastra } from '@mastra/core/mastra';
import { createTool } from '@mastra/core/tools';
import { Observability } from '@mastra/observability';
import { OtelExporter } from '@mastra/otel-exporter';
import { z } from 'zod';

const { SVC, WRITE_KEY, MODELS, SESSION } = process.env;
const getWeather = createTool({
  id: 'get_weather',
  description: 'The weather in a city.',
  inputSchema: z.object({ city: z.string() }),
  outputSchema: z.string(),
  execute: async () => 'sunny',
});
const forecaster = new Agent({
  id: 'forecaster',
  name: 'forecaster',
  instructions: 'Be brief.',
  model: { providerId: 'openai', modelId: 'gpt-4o', url: `${MODELS}/v1`, apiKey: 'none' },
  tools: { get_weather: getWeather },
});
const provider = {
  custom: {
    endpoint: `${SVC}/v1/traces`,
    protocol: 'http/protobuf',
    headers: { Authorization: `Bearer ${WRITE_KEY}` },
  },
};
const mastra = new Mastra({
  agents: { forecaster },
  logger: false,
  observability: new Observability({
    configs: { otel: { serviceName: 'client', exporters: [new OtelExporter({ provider })] } },
  }),
});

const result = await mastra.getAgent('forecaster').generate('What is the weather in Paris?', {
  tracingOptions: { metadata: { threadId: SESSION } },
});
await mastra.shutdown();
console.log(JSON.stringify([result.traceId]));
