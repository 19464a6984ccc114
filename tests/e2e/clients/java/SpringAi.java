import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import io.opentelemetry.context.Context;
import io.opentelemetry.sdk.trace.ReadWriteSpan;
import io.opentelemetry.sdk.trace.ReadableSpan;
import io.opentelemetry.sdk.trace.SpanProcessor;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.memory.ChatMemory;
import org.springframework.ai.tool.annotation.Tool;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** Spring AI: an agent that calls a tool and answers, traced by Spring Boot's starter of OpenTelemetry. */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
public class SpringAi {
    static final Set<String> TRACES = ConcurrentHashMap.newKeySet();

    static class Weather {
        @Tool(name = "get_weather", description = "The weather in a city.")
        String getWeather(String city) {
            return "sunny";
        }
    }

    @Bean
    SpanProcessor started() {
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
        SpringApplication application = new SpringApplication(SpringAi.class);
        application.setDefaultProperties(Map.ofEntries(
                Map.entry("spring.main.banner-mode", "off"),
                Map.entry("logging.level.root", "warn"),
                Map.entry("spring.application.name", "client"),
                Map.entry("spring.ai.openai.api-key", "none"),
                Map.entry("spring.ai.openai.base-url", env.get("MODELS") + "/v1"),
                Map.entry("spring.ai.openai.chat.model", "gpt-4o"),
                Map.entry("spring.ai.tools.observations.include-content", "true"),
                Map.entry("management.tracing.sampling.probability", "1.0"),
                Map.entry("management.otlp.metrics.export.enabled", "false"),
                Map.entry("management.opentelemetry.tracing.export.otlp.endpoint", env.get("SVC") + "/v1/traces"),
                Map.entry("management.opentelemetry.tracing.export.otlp.headers.Authorization",
                        "Bearer " + env.get("WRITE_KEY"))));
        try (var context = application.run()) {
            context.getBean(ChatClient.Builder.class).build()
                    .prompt("What is the weather in Paris?")
                    .tools(new Weather())
                    .advisors(advisor -> advisor.param(ChatMemory.CONVERSATION_ID, env.get("SESSION")))
                    .call()
                    .content();
        }
        System.out.println(List.copyOf(TRACES));
    }
}
