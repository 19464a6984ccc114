import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import dev.langchain4j.agent.tool.P;
import dev.langchain4j.agent.tool.Tool;
import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.openaiofficial.OpenAiOfficialChatModel;
import dev.langchain4j.service.AiServices;
import io.opentelemetry.context.Context;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.instrumentation.openai.v1_1.OpenAITelemetry;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.trace.ReadWriteSpan;
import io.opentelemetry.sdk.trace.ReadableSpan;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.SpanProcessor;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;

/** LangChain4j over OpenAI's client, which OpenTelemetry instruments: an agent that calls a tool and answers. */
public class Langchain4j {
    static final Set<String> TRACES = ConcurrentHashMap.newKeySet();

    public static class Weather {
        @Tool(name = "get_weather", value = "The weather in a city.")
        public String getWeather(@P("city") String city) {
            return "sunny";
        }
    }

    interface Forecaster {
        String ask(String question);
    }

    static SpanProcessor started() {
        return new SpanProcessor() {
            public void onStart(Context parent, ReadWriteSpan span) {
                TRACES.add('"' + span.getSpanContext().getTraceId() + '"');
            }

            public boolean isStartRequired() {
                return true;
            }

            public void onEnd(ReadableSpan span) {
            }

            public boolean isEndRequired() {
                return false;
            }
        };
    }

    public static void main(String[] arguments) {
        Map<String, String> env = System.getenv();
        OtlpHttpSpanExporter exporter = OtlpHttpSpanExporter.builder()
                .setEndpoint(env.get("SVC") + "/v1/traces")
                .addHeader("Authorization", "Bearer " + env.get("WRITE_KEY"))
                .build();
        SdkTracerProvider provider = SdkTracerProvider.builder()
                .addSpanProcessor(started())
                .addSpanProcessor(BatchSpanProcessor.builder(exporter).build())
                .build();
        OpenTelemetrySdk telemetry = OpenTelemetrySdk.builder().setTracerProvider(provider).build();
        String models = env.get("MODELS") + "/v1";
        OpenAIClient instrumented = OpenAITelemetry.builder(telemetry)
                .setCaptureMessageContent(true)
                .build()
                .wrap(OpenAIOkHttpClient.builder().apiKey("none").baseUrl(models).build());
        // Its builder takes a client, but then leaves out all other settings (1.11.0-beta19).
        ChatModel model = new OpenAiOfficialChatModel(
                OpenAiOfficialChatModel.builder().apiKey("none").baseUrl(models).modelName("gpt-4o")) {
            {
                client = instrumented;
            }
        };
        Forecaster forecaster =
                AiServices.builder(Forecaster.class).chatModel(model).tools(new Weather()).build();
        forecaster.ask("What is the weather in Paris?");
        provider.close();
        System.out.println(TRACES);
        System.exit(0);
    }
}
