# ruff: noqa: E501 - rows of a CSV
"""Made-up exports with the columns that providers really write."""

from __future__ import annotations

import json
from typing import Final

OPENAI_COSTS: Final = """\
start_time,end_time,start_time_iso,end_time_iso,amount_value,amount_currency,line_item,project_id,project_name,organization_id,organization_name
1763596800,1763683200,2025-11-20T00:00:00+00:00,2025-11-21T00:00:00+00:00,0.8958740000000000,usd,"gpt-4o-2024-08-06, input",proj_1,Shop,org-1,Acme
1763596800,1763683200,2025-11-20T00:00:00+00:00,2025-11-21T00:00:00+00:00,0.10,usd,"gpt-4o-2024-08-06, cached input",proj_1,Shop,org-1,Acme
1763683200,1763769600,2025-11-21T00:00:00+00:00,2025-11-22T00:00:00+00:00,,,,,,,
"""
OPENAI_COSTS_API: Final = """\
{"object":"page","data":[{"object":"bucket","start_time":1763596800,"end_time":1763683200,"results":[
{"object":"organization.costs.result","amount":{"value":0.1234567890123456789,"currency":"usd"},
"line_item":"gpt-4o-mini-2024-07-18, output","project_id":null}]}],"has_more":false,"next_page":null}
"""
OPENAI_USAGE: Final = """\
start_time,end_time,start_time_iso,end_time_iso,project_id,num_model_requests,user_id,api_key_id,model,batch,service_tier,input_tokens,output_tokens,input_cached_tokens,input_uncached_tokens,input_text_tokens
1763596800,1763683200,2025-11-20T00:00:00+00:00,2025-11-21T00:00:00+00:00,proj_1,12,,,gpt-4o-2024-08-06,False,default,1000,200,600,400,1000
"""
OPENAI_USAGE_API: Final = json.dumps(
    {
        "object": "page",
        "data": [
            {
                "object": "bucket",
                "start_time": 1763596800,
                "results": [
                    {
                        "object": "organization.usage.completions.result",
                        "input_tokens": 1000,
                        "output_tokens": 500,
                        "input_cached_tokens": 800,
                        "num_model_requests": 5,
                        "model": "gpt-4o",
                    }
                ],
            }
        ],
    }
)
ANTHROPIC_COST: Final = """\
usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,list_price_usd,cost_type,inference_geo,speed
2025-11-20,Claude Opus 4.5,Default,key-1,message,≤ 200k,input_no_cache,0.05,0.05,token,global,standard
2025-11-20,Claude Opus 4.5,Default,key-1,message,≤ 200k,output,1.13,1.13,token,global,standard
"""
ANTHROPIC_USAGE: Final = """\
usage_date_utc,model_version,api_key,workspace,usage_type,context_window,usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,usage_output_tokens,web_search_count
2025-11-20,claude-opus-4-5-20251101,key-1,Default,message,200k,10,20,30,40,50,0
"""
ANTHROPIC_COST_API: Final = json.dumps(
    {
        "data": [
            {
                "starting_at": "2025-11-20T00:00:00Z",
                "ending_at": "2025-11-21T00:00:00Z",
                "results": [
                    {
                        "amount": "123.45",
                        "currency": "USD",
                        "cost_type": "tokens",
                        "context_window": "0-200k",
                        "description": "Claude Opus 4.5 Usage - Output Tokens",
                        "model": "claude-opus-4-5-20251101",
                        "service_tier": "standard",
                        "token_type": "output_tokens",
                        "workspace_id": None,
                    }
                ],
            }
        ],
        "has_more": False,
    }
)
ANTHROPIC_USAGE_API: Final = json.dumps(
    {
        "data": [
            {
                "starting_at": "2025-11-20T00:00:00Z",
                "ending_at": "2025-11-21T00:00:00Z",
                "results": [
                    {
                        "uncached_input_tokens": 10,
                        "cache_creation": {"ephemeral_1h_input_tokens": 30, "ephemeral_5m_input_tokens": 20},
                        "cache_read_input_tokens": 40,
                        "output_tokens": 50,
                        "server_tool_use": {"web_search_requests": 0},
                        "model": "claude-opus-4-5-20251101",
                    }
                ],
            }
        ]
    }
)
OPENROUTER: Final = """\
generation_id,created_at,cost_total,cost_web_search,cost_cache,cost_file_processing,byok_usage_inference,tokens_prompt,tokens_completion,tokens_reasoning,tokens_cached,model_permaslug,provider_name,variant,cancelled,streamed
gen-1763640000-a,2025-11-20 10:00:00.123,0.0123,0,0,0,0,10389,137,40,0,openai/gpt-4o-2024-08-06,OpenAI,standard,false,true
"""
OPENROUTER_API: Final = json.dumps(
    {
        "data": [
            {
                "date": "2025-11-20 00:00:00",
                "model": "openai/gpt-4o",
                "model_permaslug": "openai/gpt-4o-2024-08-06",
                "endpoint_id": "e",
                "provider_name": "OpenAI",
                "usage": 0.0123,
                "byok_usage_inference": 0,
                "requests": 3,
                "prompt_tokens": 10389,
                "completion_tokens": 137,
                "reasoning_tokens": 40,
            }
        ]
    }
)
CUR: Final = """\
identity/LineItemId,lineItem/LineItemType,lineItem/UsageStartDate,lineItem/UsageEndDate,lineItem/ProductCode,lineItem/UsageType,lineItem/UsageAmount,lineItem/CurrencyCode,lineItem/UnblendedCost,product/ProductName,pricing/unit
a,Usage,2025-11-20T10:00:00Z,2025-11-20T11:00:00Z,AmazonBedrock,USE1-Claude4.6Opus-input-tokens-cross-region-global,12.5,USD,0.0625,Amazon Bedrock,1K tokens
b,Usage,2025-11-20T10:00:00Z,2025-11-20T11:00:00Z,AmazonEC2,BoxUsage:t3.micro,1,USD,0.01,Amazon EC2,Hrs
c,Tax,2025-11-01T00:00:00Z,2025-12-01T00:00:00Z,AmazonBedrock,,1,USD,0.01,Amazon Bedrock,
"""
CUR_2: Final = """\
line_item_line_item_type,line_item_usage_start_date,line_item_product_code,line_item_usage_type,line_item_usage_amount,line_item_currency_code,line_item_unblended_cost,pricing_unit,product
Usage,2025-11-20 10:00:00.000,AmazonBedrock,USW2-anthropic.claude-opus-4-6-mantle-cache-read-tokens-global-standard,0.002,USD,0.001,1M tokens,"{""product_name"":""Amazon Bedrock""}"
"""
