//! What the stages of each model hold, against what is planned for them: equal, to the byte.

use pipewright::stages::optimizer::states_of;

use super::*;

/// Bytes of a stage's weights, of its optimizer state, of what forward keeps of a micro-batch, and of what
/// backward-input keeps.
type Sizes = [f64; 4];

/// What is planned for each stage of a config whose ranks have one stage each.
fn planned(config: &Config) -> Vec<Sizes> {
    let plan = compose::plan(config).expect("a plan");
    let costs = compose::estimated_costs(config, &plan, 1.0).expect("costs");
    let costs = costs.of(plan.replicas.largest().placement()).expect("as many stages");
    let memory = compose::memory(config, &plan).expect("sizes");
    let each = memory.iter().zip(costs);
    each.map(|(rank, cost)| [rank.weights, rank.optimizer, cost.saved, cost.pending]).collect()
}

/// What each stage holds, measured while a micro-batch goes through all.
fn held(config: &Config, data: &dyn DataSource) -> Vec<Sizes> {
    let plan = compose::plan(config).expect("a plan");
    let place = compose::places(config, plan.counts.len() as u32).expect("the CPU")[0];
    let (mut wire, _) = data.micro_batch(0, MicroBatch(0)).expect("random data");
    let ctx = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
    let stages = compose::stages(config, &plan.counts).expect("stages").into_iter();
    let each = stages.map(|stage| {
        let mut stage = stage.build().expect("possible sizes");
        stage.move_to(place).expect("the CPU can");
        let input = stage.load(wire.clone()).expect("numbers");
        let weights: usize = stage.parameters().iter().map(|parameter| parameter.value.len()).sum();
        let optimizer = compose::optimizer(config);
        stage.visit_parameters(&mut |parameter| {
            // On the rank of the embedding it follows the table there.
            if parameter.is_tied() && plan.counts.len() == 1 {
                return;
            }
            parameter.make_state(&states_of(&*optimizer, parameter));
        });
        let parameters = stage.parameters().into_iter();
        let state: usize = parameters.flat_map(|parameter| &parameter.state).map(|state| state.len()).sum();
        let (output, saved) = stage.forward(ctx, input).expect("forward");
        wire = output.clone();
        let kept = saved.bytes();
        let (_, pending) = stage.backward_input(saved, output).expect("backward-input");
        [4.0 * weights as f64, 4.0 * state as f64, kept as f64, pending.bytes() as f64]
    });
    each.collect()
}

/// A model of `units` units in one stage, and in a stage for each unit, in all ways to recompute and to
/// compute.
fn agree(model: &str, units: usize, data: &dyn DataSource) {
    for stages in [1, units] {
        for recompute in ["none", "cheap", "selective", "full"] {
            for dtype in ["f32", "bf16"] {
                let text = format!(
                    "{model}\n[pipeline]\nstages = {stages}\nmicro_batches = {stages}\nmicro_batch_size = 3\n\
                     recompute = '{recompute}'\ndtype = '{dtype}'\n"
                );
                let config = Config::parse("my.toml", &text, &[], &[]).expect("a right config");
                let (planned, held) = (planned(&config), held(&config, data));
                assert_eq!(planned, held, "{text}");
            }
        }
    }
}

/// Of two blocks, on sequences of 19 tokens.
fn of_tokens(keys: &str) {
    let data = RandomTokens { rows: 3, seq: 19, vocab: 43 };
    let model = format!("[data]\nseq = 19\n[model]\nvocab = 43\nlayers = 2\ncontext = 64\n{keys}");
    agree(&model, 6, &data);
}

#[test]
fn a_gpt_holds_what_is_planned() {
    for keys in ["dim = 40\nheads = 4", "dim = 36\nheads = 2\ndropout = 0.1\ntied = true"] {
        of_tokens(keys);
    }
}

#[test]
fn a_llama_and_its_kin_hold_what_is_planned() {
    let grouped = "dim = 40\nheads = 6\nkv_heads = 2\nhead_width = 8\nffn = 72";
    for keys in [
        "kind = 'llama'\ndim = 40\nheads = 4".to_owned(),
        format!("kind = 'llama'\ntied = true\n{grouped}"),
        format!("kind = 'mistral'\nwindow = 5\n{grouped}"),
        format!("kind = 'mixtral'\nexperts = 5\n{grouped}"),
        format!("kind = 'qwen2'\n{grouped}"),
        format!("kind = 'qwen3'\n{grouped}"),
    ] {
        of_tokens(&keys);
    }
}

#[test]
fn a_perceptron_holds_what_is_planned() {
    let data = RandomRows { rows: 3, width: 31, classes: 5 };
    for dropout in ["0.0", "0.1"] {
        let model = format!(
            "[data]\nkind = 'idx'\npath = 'images'\nlabels = 'labels'\n\
             [model]\nkind = 'mlp'\nsizes = '31,17,23,5'\ndropout = {dropout}"
        );
        agree(&model, 6, &data);
    }
}

#[test]
fn networks_of_convolutions_hold_what_is_planned() {
    let data = RandomRows { rows: 3, width: 16 * 8 * 2, classes: 5 };
    for (keys, units) in
        [("kind = 'cnn'\nchannels = '5,6,3'", 4), ("kind = 'resnet'\nblocks = '2,1,2'\nwidth = 6", 7)]
    {
        let model = format!(
            "[data]\nkind = 'idx'\npath = 'images'\nlabels = 'labels'\n\
             [model]\nimage = '16,8,2'\nclasses = 5\n{keys}"
        );
        agree(&model, units, &data);
    }
}

/// Some numbers more in each adapter: what is between its matrices is kept, and after backward-input its
/// gradient too. What a model with adapters holds without these is planned as if all of it were trained.
#[test]
fn a_higher_rank_of_adapters_holds_what_is_planned() {
    let tokens = RandomTokens { rows: 3, seq: 19, vocab: 43 };
    let images = RandomRows { rows: 3, width: 31, classes: 5 };
    let gpt = "[data]\nseq = 19\n[model]\nvocab = 43\nlayers = 2\ndim = 40\nheads = 4";
    let llama = format!("{gpt}\nkind = 'llama'\nkv_heads = 2");
    let mlp = "[data]\nkind = 'idx'\npath = 'images'\nlabels = 'labels'\n[model]\nkind = 'mlp'\n\
               sizes = '31,17,23,5'";
    let cases: [(&str, &dyn DataSource); 4] =
        [(gpt, &tokens), (&format!("{gpt}\ndropout = 0.1"), &tokens), (&llama, &tokens), (mlp, &images)];
    for (model, data) in cases {
        for (recompute, dtype) in
            [("none", "f32"), ("cheap", "bf16"), ("cheap", "f32"), ("selective", "bf16"), ("full", "f32")]
        {
            let sizes = |rank: usize, dropout: f64| {
                let text = format!(
                    "{model}\n[lora]\nrank = {rank}\ntargets = ['*']\ndropout = {dropout}\n\
                     [pipeline]\nstages = 1\nmicro_batches = 1\n\
                     micro_batch_size = 3\nrecompute = '{recompute}'\ndtype = '{dtype}'\n"
                );
                let config = Config::parse("my.toml", &text, &[], &[]).expect("a right config");
                (planned(&config)[0], held(&config, data)[0])
            };
            for dropout in [0.0, 0.2] {
                let [low, high] = [2, 5].map(|rank| sizes(rank, dropout));
                let more =
                    |of: fn(&(Sizes, Sizes)) -> &Sizes| [2, 3].map(|size| of(&high)[size] - of(&low)[size]);
                assert_eq!(more(|sizes| &sizes.0), more(|sizes| &sizes.1), "{model} {recompute} {dtype}");
                assert!(more(|sizes| &sizes.1)[1] > 0.0, "{model}");
            }
        }
    }
}

#[test]
fn every_optimizer_keeps_what_is_planned() {
    let images = RandomRows { rows: 3, width: 16 * 8 * 2, classes: 5 };
    let tokens = RandomTokens { rows: 3, seq: 19, vocab: 43 };
    // Batch norm has running means, which no optimizer updates.
    let resnet = "[data]\nkind = 'idx'\npath = 'images'\nlabels = 'labels'\n\
                  [model]\nimage = '16,8,2'\nclasses = 5\nkind = 'resnet'\nblocks = '2,1,2'\nwidth = 6";
    let gpt = "[data]\nseq = 19\n[model]\nvocab = 43\nlayers = 2\ndim = 36\nheads = 2\ntied = true";
    for optimizer in ["sgd", "lion", "muon", "adafactor"] {
        let with = |model: &str| format!("{model}\n[optimizer]\nkind = '{optimizer}'");
        agree(&with(resnet), 7, &images);
        agree(&with(gpt), 6, &tokens);
    }
}

#[test]
fn what_is_not_trained_keeps_nothing_of_the_optimizer() {
    let frozen = "[data]\nseq = 19\n[model]\nvocab = 43\nlayers = 2\ndim = 36\nheads = 2\n[optimizer]\n\
                  groups = [{ parameters = ['h.1.*'], frozen = true }]\n[pipeline]\nstages = 1\n\
                  micro_batches = 1\nmicro_batch_size = 3";
    let config = Config::parse("my.toml", frozen, &[], &[]).expect("a right config");
    let tokens = RandomTokens { rows: 3, seq: 19, vocab: 43 };
    let [planned, held] = [planned(&config), held(&config, &tokens)].map(|sizes| sizes[0][1]);
    assert_eq!(planned, held);
}

#[test]
fn muon_keeps_two_numbers_a_weight_of_what_it_leaves_to_adamw() {
    let config = |by_adamw: &str| {
        let text = format!(
            "[data]\nseq = 8\n[model]\nkind = 'stack'\nvocab = 9\nstack = [\n\
             {{ kind = 'embedding', vocab = 9, context = 8, dim = 4 }},\n\
             {{ kind = 'linear', inputs = 4, outputs = 9, bias = false }},\n]\n\
             [optimizer]\nkind = 'muon'\n{by_adamw}\n[pipeline]\nstages = 1\nmicro_batches = 1\n"
        );
        Config::parse("my.toml", &text, &[], &[]).expect("a right config")
    };
    let optimizer = |by_adamw| {
        let config = config(by_adamw);
        let plan = compose::plan(&config).expect("a plan");
        compose::memory(&config, &plan).expect("sizes")[0].optimizer
    };
    let [embedding, head] = [4.0 * (9 + 8) as f64 * 4.0, 4.0 * (4 * 9) as f64];
    assert_eq!(optimizer(""), 2.0 * embedding + head);
    assert_eq!(optimizer("by_adamw = ['1.weight']"), embedding + 2.0 * head);
    let error = compose::model(&config("by_adamw = ['2.weight']")).expect_err("there is none");
    has(&error, &["optimizer.by_adamw: `2.weight` fits nothing"]);
}
