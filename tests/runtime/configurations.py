"""Configurations that several tests use."""

RICH = """\
version: 1
teams:
  - name: red
    keys:
      - {name: app, key: "env:IGW_TEST_APP_KEY", models: ["*"], requests_per_minute: 600, priority: batch}
      - name: ops
        key: "a-literal-key-of-more-than-32-characters"
        models: [deepseek-chat, gpt-4.1]
        operator: true
        expires: 2031-01-31T12:00:00Z
      - {name: old, key: "file:FILE", models: [], disabled: true}
  - name: blue
accounts:
  - {name: openai-main, base_url: "https://api.openai.com/v1", api_key: "env:IGW_TEST_VENDOR_KEY"}
  - {name: literal, base_url: "https://vendor.example/v1/", api_key: "sk-vendor-secret"}
  - {name: open, base_url: "http://[::1]:8080"}
pools:
  - model: deepseek-v3
    aliases: [deepseek-chat, "deepseek/v3"]
    policy: {name: least_requests}
    rate_limit: {requests_per_minute: 1000}
    max_in_flight: 256
    queue: {size: 64, timeout_s: 1}
    circuit_breaker: {failure_threshold: 7, success_threshold: 1, timeout_s: 30}
    retry: {max_attempts: 3}
    timeouts: {connect_s: 2, first_byte_s: 61, idle_s: 60, total_s: 3600}
    health: {path: /healthz, interval_s: 5}
    stream_usage: false
    history: off
    workers:
      - {name: w1, url: "http://127.0.0.1:9101/", weight: 3, max_in_flight: 32, api_key: "worker-secret"}
      - name: w2
        url: http://worker-2:8000
        upstream_model: deepseek
        profiles: [{services: [chat], streaming: true}, {models: [deepseek-v3]}]
        labels: {zone: b, rack: "7"}
        api_key: file:FILE
        state: draining
  - {model: gpt-4.1, account: openai-main, upstream_model: gpt-4.1-mini, history: metadata}
  - {model: Qwen/Qwen3-8B, account: literal, rate_limit: 60, enabled: false}
  - {model: later, enabled: false}
groups:
  - id: fast
    strategy: weight
    members: [deepseek-v3, {ref: open/qwen/32b, weight: 3}, group/spare]
    rules:
      - {member: open/qwen/32b, min_tokens: 8000, has_tools: true, min_effort: medium}
      - {member: group/spare, header: "x-app: batch", keys: [red/ops], teams: [blue]}
      - {member: deepseek-v3, has_images: false, has_audio: false, intent: code}
    error_classes: jackdaw-strict
    max_attempts: 4
    keeps_conversations: false
    intent_model: open/tiny
    intents: {code: "writing, or mending code", talk: everything else}
  - {id: spare, strategy: manual, picked: gpt-4.1, members: [deepseek-chat, gpt-4.1]}
  - {id: off, enabled: false}
"""

SMALL = """\
version: 1
teams:
  - {name: green, keys: [{name: app, key: "another-literal-key-of-more-than-32-characters"}]}
pools:
  - model: small
    workers:
      - {name: w1, url: "http://127.0.0.1:9101"}
"""
