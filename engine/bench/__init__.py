"""How fast the engine is on this machine, against what the machine could do.

    from engine.bench.plan import Plan
    from engine.bench.suite import Suite

    report = Suite(load_model("smollm2"), Plan()).run()
    print(report.document())                       # the JSON document of `chat-tui bench --json`

`plan` says what is measured and `report` what came out; neither needs torch. `ceilings` measures
the machine, `counts` holds the formulas (FLOPs of a prefill, bytes of a decode step), `suite`
measures a model, and `gpu` one of nanochat's d20 size beside nanochat's own way of running it
(`eager`).

Everything is measured from outside, through `Engine.generate`: the clock runs from the call until a
token column is in Python's hands, so sampling, tool queues and detokenisation are in it.
"""
