"""Chat templates for tests: plain, with tools and marks of the assistant, with a date."""

PLAIN = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

TOOLS = """\
{%- set today = strftime_now("%d %b %Y") %}
{{- bos_token }}
{%- if tools %}
    {{- "<|tools|> " + today }}
    {%- for tool in tools %}
        {{- "\\n" + (tool | tojson) }}
    {%- endfor %}
    {{- tools | tojson(indent=2) }}
{%- endif %}
{%- for document in documents or [] %}
    {{- document.title + ": " + document.text }}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == "assistant" %}
        {{- "<|assistant|>" }}
        {%- generation %}
        {{- m.content }}
        {%- for call in m.tool_calls or [] %}
            {{- call.function.name + (call.function.arguments | tojson) }}
        {%- endfor %}
        {{- eos_token }}
        {%- endgeneration %}
    {%- elif m.content is string %}
        {{- "<|" + m.role + "|>" + m.content | trim }}
    {%- else %}
        {%- for part in m.content %}
            {{- "<image>" if part.type == "image" else part.text }}
        {%- endfor %}
    {%- endif %}
    {%- if m.role not in ("system", "user", "assistant", "tool") %}
        {{- raise_exception("unknown role") }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|assistant|>" }}
{%- endif %}
"""
