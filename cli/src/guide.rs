//! The README, the pages of the guide and the examples: their Rust code runs as doc-tests.

/// A module for each page, with the page as its documentation.
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {$(
        #[doc = include_str!($path)]
        mod $name {}
    )*};
}

pages! {
    readme: "../../README.md",
    why: "../../book/src/why.md",
    how_to: "../../book/src/how-to.md",
    first_run: "../../book/src/first-run.md",
    watching: "../../book/src/watching.md",
    privacy: "../../book/src/privacy.md",
    launch: "../../book/src/launch.md",
    launch_threads: "../../book/src/launch-threads.md",
    layers: "../../book/src/layers.md",
    blocks: "../../book/src/blocks.md",
    layers_in_config: "../../book/src/layers-in-config.md",
    schedules: "../../book/src/schedules.md",
    replicas: "../../book/src/replicas.md",
    one_stage: "../../book/src/one-stage.md",
    several_stages: "../../book/src/several-stages.md",
    two_halves: "../../book/src/two-halves.md",
    out_and_back: "../../book/src/out-and-back.md",
    auto: "../../book/src/auto.md",
    bubbles: "../../book/src/bubbles.md",
    bubbles_end: "../../book/src/bubbles-end.md",
    choosing: "../../book/src/choosing.md",
    schedules_in_figures: "../../book/src/schedules-in-figures.md",
    own_schedule: "../../book/src/own-schedule.md",
    micro_batches: "../../book/src/micro-batches.md",
    memory: "../../book/src/memory.md",
    offload: "../../book/src/offload.md",
    recompute: "../../book/src/recompute.md",
    tuning: "../../book/src/tuning.md",
    data: "../../book/src/data.md",
    documents: "../../book/src/documents.md",
    tokenizers: "../../book/src/tokenizers.md",
    processes: "../../book/src/processes.md",
    links: "../../book/src/links.md",
    who_gets_in: "../../book/src/who-gets-in.md",
    lost_processes: "../../book/src/lost-processes.md",
    stalls: "../../book/src/stalls.md",
    checkpoints: "../../book/src/checkpoints.md",
    checkpoints_written: "../../book/src/checkpoints-written.md",
    restarts: "../../book/src/restarts.md",
    run_module: "../../book/src/run-module.md",
    report: "../../book/src/report.md",
    timelines: "../../book/src/timelines.md",
    own_layer: "../../book/src/own-layer.md",
    own_loss: "../../book/src/own-loss.md",
    preferences: "../../book/src/preferences.md",
    own_stage: "../../book/src/own-stage.md",
    inside: "../../book/src/inside.md",
    example_gpt: "../../book/src/example-gpt.md",
    example_mnist: "../../book/src/example-mnist.md",
    example_resnet: "../../book/src/example-resnet.md",
    example_stage: "../../book/src/example-stage.md",
    config: "../../book/src/config.md",
    command_line: "../../book/src/command-line.md",
}

/// A module for each example, with the whole of it as the code of its documentation.
macro_rules! examples {
    ($($name:ident: $path:literal,)*) => {$(
        #[doc = concat!("```\n", include_str!($path), "```")]
        mod $name {}
    )*};
}

examples! {
    hello: "../../examples/hello.rs",
    a_run: "../../examples/run.rs",
    layer_of_ones_own: "../../examples/own_layer.rs",
    stage_of_ones_own: "../../examples/own_stage.rs",
}
