use super::*;

#[test]
fn a_wrong_type_says_what_was_expected_and_what_was_found() {
    all_refused(&[
        (
            "[model]\n\ndim = 'wide'",
            &["my.toml:3: model.dim: expected a whole number, 0 or more, got \"wide\""],
        ),
        ("[model]\ndim = -4", &["model.dim: expected a whole number, 0 or more, got -4"]),
        ("[train]\nsteps = 10.5", &["train.steps: expected a whole number, 0 or more, got 10.5"]),
        ("[pipeline]\nmicro_batches = 5000000000", &["expected a whole number from 0 to 4294967295"]),
        (
            "[optimizer]\nlearning_rate = 'fast'",
            &["optimizer.learning_rate: expected a number, got \"fast\""],
        ),
        ("[model]\ntied = 1", &["model.tied: expected true or false, got 1"]),
        ("[train]\nname = 3", &["train.name: expected text in quotes, got 3"]),
        ("[data]\npath = 3", &["data.path: expected a path in quotes or a list of them, got 3"]),
        ("[data]\nvalidation = 'some'", &["expected a fraction from 0 to below 1, or a whole number"]),
        ("[optimizer]\nbetas = [0.9]", &["optimizer.betas: expected a list of two numbers, got [0.9]"]),
        (
            "[pipeline]\npartition = 'even'",
            &["expected \"balanced\" or a list of layer names for each stage"],
        ),
        (
            "[pipeline]\nrecompute = 'ful'",
            &[
                "my.toml:2: pipeline.recompute: expected one of `none`, `cheap`, `selective`, `full`",
                "got \"ful\": did you mean \"full\"?",
            ],
        ),
        (
            "[pipeline]\nrecompute = ['full', 'non']",
            &[
                "pipeline.recompute: expected one of `none`",
                "got [\"full\", \"non\"]: did you mean \"none\"?",
            ],
        ),
        (
            "[pipeline]\nrecompute = 3",
            &["`none`, `cheap`, `selective`, `full` or a list of these with one for each stage, got 3"],
        ),
        (
            "[optimizer]\nbetas = [0.9, 0.95, 1]",
            &["optimizer.betas: expected a list of two numbers, got [0.9, 0.95, 1]"],
        ),
        (
            "[data]\npath = ['builtin:shakespeare', 'x']",
            &["my.toml:2: data.path: the only built-in data is \"builtin:shakespeare\": give it alone"],
        ),
        (
            "[data]\nkind = 'tokens'\npath = 'builtin:shakespeare'",
            &["my.toml:3: data.path: the only built-in data is", "with data.kind = \"text\""],
        ),
        (
            "[metrics]\nlisten = 94000",
            &["expected a port such as 9400, or an address and a port such as \"10.0.0.1:9400\", got 94000"],
        ),
        (
            "[metrics]\nlisten = 'here'",
            &["expected a port such as 9400, or an address and a port such as", "got \"here\""],
        ),
        (
            "[model]\nkind = 'gtp'",
            &[
                "model.kind: expected one of `gpt`, `llama`, `mistral`, `mixtral`, `qwen2`, `qwen3`, `mlp`",
                "got \"gtp\": did you mean \"gpt\"?",
            ],
        ),
        (
            "[data]\nkind = 'txt'",
            &["expected one of `text`, `tokens`, `jsonl`, `parquet`, `idx`", "did you mean \"text\"?"],
        ),
        ("[model]\nkind = 'mlp'\nsizes = 'a,b'", &["model.sizes: expected widths such as \"784,128,10\""]),
    ]);
}

#[test]
fn zero_is_refused_where_there_must_be_one() {
    let keys = [
        "model.vocab",
        "model.dim",
        "model.layers",
        "model.heads",
        "data.seq",
        "pipeline.stages",
        "pipeline.micro_batches",
        "pipeline.micro_batch_size",
        "pipeline.batch_size",
        "pipeline.threads_per_rank",
        "train.steps",
        "train.print_every",
        "train.snapshot_every",
        "train.validation_micro_batches",
        "checkpoint.keep",
    ];
    for key in keys {
        let said = refused(with_sets("", &[&format!("{key}=0")]));
        assert_eq!(said, format!("--set: {key}: is 0: set it to 1 or more"));
    }
}

#[test]
fn impossible_values_say_what_to_do() {
    all_refused(&[
        (
            "[model]\ndim = 12\nheads = 5",
            &[
                "my.toml:3: model.heads: model.dim 12 is not divisible by 5 heads: ",
                "choose from 1, 2, 3, 4, 6, 12",
            ],
        ),
        ("[model]\ndropout = 1.0", &["my.toml:2: model.dropout: 1 is not a probability below 1"]),
        (
            "[model]\nkind = 'mlp'\nsizes = '10'\n[data]\nkind = 'idx'",
            &["model.sizes: [10]: give the widths"],
        ),
        (
            "[model]\nkind = 'mlp'",
            &["data.kind: a model of kind \"mlp\" takes images: set data.kind to \"idx\" or \"cifar10\""],
        ),
        ("[data]\nkind = 'idx'", &["my.toml:2: data.kind: a model of kind \"gpt\" takes tokens"]),
        ("[data]\nvalidation = 1.5", &["data.validation: 1.5 is neither a fraction"]),
        (
            "[pipeline]\nbatch_size = 30",
            &["pipeline.batch_size: a batch of 30 cannot be divided into 4 micro-batches: take 28 or 32 \
                 rows"],
        ),
        (
            "[pipeline]\nbatch_size = 32\nmicro_batch_size = 4",
            &["my.toml:3: pipeline.micro_batch_size: a batch of 32 over pipeline.micro_batches 4 makes 8 \
                 each"],
        ),
        (
            "[optimizer]\nlearning_rate = 0",
            &["optimizer.learning_rate: 0 is not allowed: it must be above 0"],
        ),
        ("[optimizer]\nlearning_rate = nan", &["NaN is not allowed"]),
        ("[optimizer]\nbetas = [0.9, 1.0]", &["optimizer.betas: 1 is not allowed"]),
        ("[optimizer]\neps = 0.0", &["optimizer.eps: 0 is not allowed"]),
        ("[optimizer]\nkind = 'sgd'\nmomentum = 1.0", &["optimizer.momentum: 1 is not allowed"]),
        ("[optimizer]\nweight_decay = -1", &["optimizer.weight_decay: -1 is not allowed"]),
        ("[optimizer]\nclip = -1", &["optimizer.clip: -1 is not allowed"]),
        (
            "[optimizer]\nlabel_smoothing = 1",
            &["optimizer.label_smoothing: 1 is not allowed: it must be from 0 to below 1"],
        ),
        (
            "[optimizer]\nschedule = 'cosine'\nmin_learning_rate = 1",
            &["it must be from 0 to optimizer.learning_rate"],
        ),
        (
            "[optimizer]\nschedule = 'cosine'\nwarmup_steps = 99\n[train]\nsteps = 9",
            &["my.toml:3: optimizer.warmup_steps: 99 steps of warm-up do not fit into train.steps = 9"],
        ),
        (
            "[optimizer]\nschedule = 'wsd'\nwarmup_steps = 4\ndecay_steps = 6\n[train]\nsteps = 9",
            &["my.toml:4: optimizer.decay_steps: 6 steps of decay after 4 of warm-up do not fit into"],
        ),
        ("[train]\nname = 'a/b'", &["train.name: \"a/b\" cannot name a folder"]),
        ("[train]\nname = ''", &["train.name: \"\" cannot name a folder"]),
    ]);
}

#[test]
fn sizes_beyond_any_machine_are_refused_with_the_limit() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["pipeline.batch_size=30000000000"],
            "pipeline.batch_size: 30000000000 is too large: at most 4194304 rows",
        ),
        (
            &["pipeline.micro_batch_size=9223372036854775807"],
            "pipeline.micro_batch_size: 9223372036854775807 is too large: at most 1048576 rows",
        ),
        (&["model.vocab=9999999999999"], "model.vocab: 9999999999999 is too large: at most 16777216 tokens"),
        (&["model.dim=9223372036854775804"], "model.dim: 9223372036854775804 is too large: at most 16777216"),
        (&["model.layers=1000000000000"], "model.layers: 1000000000000 is too large: at most 1000 blocks"),
        (
            &["data.seq=9223372036854775807"],
            "data.seq: 9223372036854775807 is too large: at most 1048576 tokens",
        ),
        (
            &["model.dim=16777216"],
            "model.dim: a block's widest matrix would have 4 x 16777216 x 16777216 numbers",
        ),
        (
            &["model.vocab=16777216", "model.dim=4096"],
            "model.vocab: the token embedding would have 16777216 x 4096",
        ),
        (
            &["pipeline.micro_batch_size=1048576", "data.seq=1048576"],
            "pipeline.micro_batch_size: a block's widest activation would have 1048576 x 1048576 x 4 x 128 \
             numbers: at most 8589934592 are supported, lower one of these",
        ),
        (
            &["model.layers=1000", "model.dim=8192"],
            "model.layers: the model would have more than 274877906944 weights",
        ),
        (
            &["model.kind=mlp", "data.kind=idx", "model.sizes=784,9223372036854775807"],
            "model.sizes: 9223372036854775807 is too large",
        ),
        (
            &["model.kind=mlp", "data.kind=idx", "model.sizes=1000000,1000000"],
            "model.sizes: a layer's matrix would have 1000000 x 1000000 numbers",
        ),
    ];
    for (sets, part) in cases {
        let said = refused(with_sets("", sets));
        assert!(said.contains(part) && said.starts_with("--set: "), "{sets:?} said {said:?}");
    }
}

#[test]
fn stages_partitions_and_schedules_that_cannot_be_are_named() {
    let small = "[model]\nlayers = 1\n[pipeline]\n";
    let with = |rest: &str| refused(parse(&format!("{small}{rest}")));
    let said = with("stages = 5");
    assert!(said.starts_with("my.toml:4: pipeline.stages: 5 stages for 4 layers"), "{said}");
    let said = with("partition = [['embed'], ['h.0.attn', 'head']]");
    assert!(said.starts_with("my.toml:4: pipeline.partition: layer `h.0.mlp` is missing"), "{said}");
    let said = with("partition = [['embed', 'h.0'], ['h.0.mlp', 'head']]");
    has(&said, &["pipeline.partition: layer `h.0.mlp` comes again in stage 1"]);
    let said = with("recompute = ['none', 'full', 'full']");
    assert_eq!(
        said,
        "my.toml:4: pipeline.recompute: the list has 3, pipeline.stages is 2: give one word a stage, or one \
         for all"
    );
    let said = with("partition = [['embed', 'h.0.atn'], ['h.0.mlp', 'head']]");
    has(&said, &["unknown layer `h.0.atn`: did you mean `h.0.attn`?"]);
    let said = with("stages = 3\npartition = [['embed', 'h.0'], ['head']]");
    has(&said, &["pipeline.partition: the list has 2, pipeline.stages is 3: give one list a stage"]);
    let said = with("schedule = '1f2b'");
    assert!(said.starts_with("my.toml:4: pipeline.schedule: ") && said.contains("1f1b"), "{said}");
}

#[test]
fn a_memory_that_is_none_is_refused_in_one_sentence() {
    all_refused(&[(
        "[pipeline]\nmemory = 'lots'",
        &["my.toml:2: pipeline.memory: expected a size above 0 such as 200MiB, 1.5GiB or 1000000, got \
             \"lots\""],
    )]);
}

#[test]
fn servers_that_cannot_be_are_refused() {
    all_refused(&[
        (
            "[pipeline]\nwires = '8bit'\ndtype = 'bf16'",
            &["my.toml:2: pipeline.wires: wires of 8 bits are for ranks on the CPU that compute in f32"],
        ),
        (
            "[pipeline]\nwires = '8bit'\ndevices = 'cuda'",
            &["my.toml:2: pipeline.wires: wires of 8 bits are for ranks on the CPU that compute in f32"],
        ),
        ("[pipeline]\nwires = 'int8'", &["my.toml:2: ", "write \"8bit\""]),
        (
            "[pipeline]\nsums = 'bf16'\ndevices = 'cuda'",
            &["my.toml:2: pipeline.sums: GPUs add up gradients in f32: set this to \"f32\""],
        ),
        (
            "[pipeline]\nsums = 'bf16'\nreplicas = 2\nsync = 'server'",
            &["my.toml:2: pipeline.sums: a parameter server adds up gradients in f32: set this to \"f32\""],
        ),
        (
            "[pipeline]\nbarrier = false\ndevices = 'cuda'",
            &["my.toml:2: pipeline.barrier: ranks on GPUs cannot train without a barrier: set \
               pipeline.devices = \"cpu\", or this to true"],
        ),
        (
            "[pipeline]\nbarrier = false\nreplicas = 2\nsync = 'server'",
            &["pipeline.barrier: a parameter server cannot train", "pipeline.sync = \"reduce\", or this"],
        ),
        (
            "[train]\nrestarts = 1\n[pipeline]\nbarrier = false",
            &["pipeline.barrier: ranks that are built again after a failure", "train.restarts = 0, or this"],
        ),
        (
            "[pipeline]\nreplicas = 2\nmax_staleness = 2",
            &["my.toml:3: pipeline.max_staleness is for pipeline.sync = \"server\""],
        ),
        (
            "[pipeline]\nreplicas = 2\nsync = 'server'\nmax_staleness = 2\n[model]\ntied = true",
            &["my.toml:4: pipeline.max_staleness: weights may not be stale in a model with tied parameters \
                 (model.tied), whose copies must stay equal: set this to 0, or take pipeline.sync = \
                 \"reduce\""],
        ),
        (
            "[pipeline]\nreplicas = 2\nsync = 'server'\nmax_staleness = 2\ndevices = 'cuda'",
            &["my.toml:4: pipeline.max_staleness: weights may not be stale on a GPU, only on cpu: set this"],
        ),
        ("[pipeline]\nsync = 'ring'", &["my.toml:2: pipeline.sync", "server"]),
    ]);
}

#[test]
fn replicas_and_sharded_optimizers_that_cannot_be_are_refused() {
    all_refused(&[
        ("[pipeline]\nreplicas = 0", &["my.toml:2: pipeline.replicas: is 0: set it to 1 or more"]),
        (
            "[pipeline]\ngradient_groups = 0",
            &["my.toml:2: pipeline.gradient_groups: is 0: set it to 1 or more"],
        ),
        (
            "[pipeline]\nreplicas = 9\ngradient_groups = 8",
            &["my.toml:2: pipeline.replicas: 9 replicas cannot share 8 gradient groups, because a \
                 replica has whole groups: set pipeline.gradient_groups to 9 or more, which adds in another \
                 order, or use at most 8 replicas"],
        ),
        (
            "[pipeline]\nreplicas = 4294967295\ngradient_groups = 4294967295",
            &["my.toml:2: pipeline.replicas: 4294967295 is too large: at most 1048576 replicas"],
        ),
        (
            "[optimizer]\nkind = 'sgd'\nmomentum = 0.0\nsharded = true",
            &["my.toml:4: optimizer.sharded: sgd without momentum has no state to divide among replicas"],
        ),
    ]);
}
