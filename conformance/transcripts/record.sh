#!/bin/sh
# Records the transcripts in valid/ that are not made by hand, from antiphon with the script of the suite's
# behaviours. Usage: record.sh BASE_URL
set -eu
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat > "$folder/tools.json" <<'JSON'
{"tools": [
  {"type": "function", "name": "get_weather", "strict": true, "parameters": {"type": "object",
   "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false}},
  {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}},
  {"type": "custom", "name": "editor"},
  {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [{"type": "function",
   "name": "close_agent", "parameters": {"type": "object", "properties": {"id": {"type": "string"}}}}]}
]}
JSON
echo '{"max_output_tokens": 16}' > "$folder/cut.json"
echo '{"store": false}' > "$folder/not_stored.json"
echo '{"background": true}' > "$folder/background.json"

record() { # NAME BEHAVIOUR [BODY]
    responses-conformance record "valid/$1.sse" --base-url "$URL" --api-key sk-conformance-first \
        --model scripted --behaviour "$2" ${3:+--body "$folder/$3.json"}
}

URL=$1
for name in text emoji separators silence failure failure_at_once filtered reasoning; do
    record $name $name
done
for name in call call_in_one_piece two_calls text_and_calls call_and_text call_without_arguments \
    custom_call namespaced_call reasoning_and_call wrong_arguments; do
    record $name $name tools
done
record cut long cut
record cut_reasoning reasoning_alone cut
record not_stored text not_stored
record background text background
