// Genkit for Go: a flow that generates with a tool, exported as OTLP.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/core/tracing"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai/openai"
	"github.com/openai/openai-go/option"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/trace"
)

type place struct {
	City string `json:"city"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(os.Getenv("SVC")+"/v1/traces"),
		otlptracehttp.WithHeaders(map[string]string{"Authorization": "Bearer " + os.Getenv("WRITE_KEY")}))
	check(err)
	provider := tracing.TracerProvider()
	provider.RegisterSpanProcessor(trace.NewBatchSpanProcessor(exporter))

	plugin := &openai.OpenAI{
		APIKey: "none",
		Opts:   []option.RequestOption{option.WithBaseURL(os.Getenv("MODELS") + "/v1")},
	}
	g := genkit.Init(ctx, genkit.WithPlugins(plugin))
	weather := genkit.DefineTool(g, "get_weather", "The weather in a city.",
		func(_ *ai.ToolContext, _ place) (string, error) { return "sunny", nil })
	traceID := ""
	forecaster := genkit.DefineFlow(g, "forecaster", func(ctx context.Context, question string) (string, error) {
		traceID = tracing.SpanTraceInfo(ctx).TraceID
		return genkit.GenerateText(ctx, g,
			ai.WithModelName("openai/gpt-4o"), ai.WithPrompt(question), ai.WithTools(weather))
	})
	_, err = forecaster.Run(ctx, "What is the weather in Paris?")
	check(err)
	check(provider.Shutdown(ctx))
	ids, err := json.Marshal([]string{traceID})
	check(err)
	fmt.Println(string(ids))
}
