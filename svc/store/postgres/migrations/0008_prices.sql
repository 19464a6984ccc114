-- expand
-- What a span's price was worked out from: which prices were asked, and what they depend on beside the tokens.

alter table span
    add column service_tier        text,
    add column input_audio_tokens  bigint,
    add column output_audio_tokens bigint,
    add column price_book          text;
