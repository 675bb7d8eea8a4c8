#!/bin/sh
# Records the transcripts in valid/ that a real model said, from antiphon with its embedded model and no script.
# Usage: record_real.sh BASE_URL
set -eu
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
URL=$1

record() { # NAME, and the body on standard input
    cat > "$folder/body.json"
    responses-conformance record "valid/real_$1.sse" --base-url "$URL" --model smollm2-135m-instruct \
        --body "$folder/body.json"
}

record text <<'JSON'
{"input": "Say hello.", "temperature": 0, "max_output_tokens": 40}
JSON
first=$(sed -n 's/^data: .*"response":{"id":"\(resp_[0-9a-f]*\)".*/\1/p' valid/real_text.sse | head -n 1)
record second_turn <<JSON
{"input": "And now goodbye.", "previous_response_id": "$first", "temperature": 0, "max_output_tokens": 40}
JSON
record cut <<'JSON'
{"input": "Count to one hundred.", "temperature": 0, "max_output_tokens": 16}
JSON
record background <<'JSON'
{"input": "Say hello.", "background": true, "temperature": 0, "max_output_tokens": 24}
JSON
record not_stored <<'JSON'
{"input": "Say hello.", "instructions": "You are brief.", "store": false, "temperature": 0, "max_output_tokens": 24}
JSON
record log_probabilities <<'JSON'
{"top_logprobs": 1, "include": ["message.output_text.logprobs"], "temperature": 0,
 "max_output_tokens": 16, "input": "Say hi."}
JSON
record schema <<'JSON'
{"input": "Name a city and say how many people live there.", "temperature": 0, "max_output_tokens": 60,
 "text": {"format": {"type": "json_schema", "name": "city", "strict": true, "schema": {"type": "object",
  "properties": {"name": {"type": "string", "maxLength": 20}, "people": {"type": "integer", "minimum": 0,
   "maximum": 99999999}}, "required": ["name", "people"], "additionalProperties": false}}}}
JSON
tools='[{"type": "function", "name": "get_weather", "strict": true, "parameters": {"type": "object",
  "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": false}}]'
record call <<JSON
{"input": "What is the weather in Oslo?", "tools": $tools, "tool_choice": "required", "temperature": 0,
 "max_output_tokens": 60}
JSON
record call_cut <<'JSON'
{"input": "Write a long letter.", "tool_choice": "required", "temperature": 0, "max_output_tokens": 24,
 "tools": [{"type": "function", "name": "write", "strict": true, "parameters": {"type": "object",
  "properties": {"letter": {"type": "string", "minLength": 400}}, "required": ["letter"],
  "additionalProperties": false}}]}
JSON
record custom_call <<'JSON'
{"input": "Pick a colour.", "temperature": 0, "max_output_tokens": 40, "tool_choice": {"type": "custom", "name": "pick"},
 "tools": [{"type": "custom", "name": "pick", "format": {"type": "grammar", "syntax": "regex", "definition": "red|blue"}}]}
JSON
record effort <<'JSON'
{"input": "Say hello.", "reasoning": {"effort": "low"}, "temperature": 0, "max_output_tokens": 24}
JSON
