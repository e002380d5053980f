//! Models that a config lists layer by layer, with ready layers and layers of one's own.

use pipewright::stages::layers::{Block, Linear};
use pipewright::stages::{Init, chain};
use pipewright_cli::compose::{self, LayerPlace, register_layer};

use super::*;

const TEXT: &str = "
[data]
seq = 8
[model]
kind = 'stack'
vocab = 43
stack = [
    { kind = 'embedding', vocab = 43, context = 8, dim = 12 },
    { kind = 'residual', layers = [
        { kind = 'layer_norm', width = 12 },
        { kind = 'linear', inputs = 12, outputs = 36, bias = false },
        { kind = 'attention', dim = 12, heads = 3 },
        { kind = 'dropout', rate = 0.1 },
    ] },
    { kind = 'product', branches = [
        [{ kind = 'linear', inputs = 12, outputs = 12 }, { kind = 'sigmoid' }],
        [{ kind = 'rms_norm', width = 12 }, { kind = 'tanh' }],
    ] },
    { kind = 'linear', inputs = 12, outputs = 43 },
]
";

const IMAGES: &str = "
[data]
kind = 'idx'
path = 'images'
[model]
kind = 'stack'
image = [6, 6, 1]
stack = [
    { kind = 'conv2d', inputs = 1, outputs = 4, kernel = 3, padding = 1 },
    { kind = 'batch_norm', channels = 4 },
    { kind = 'relu' },
    { kind = 'max_pool', kernel = 2 },
    { kind = 'sum', branches = [
        [{ kind = 'conv2d', inputs = 4, outputs = 4, kernel = 1, bias = false }],
        [{ kind = 'group_norm', groups = 2, channels = 4 }],
    ] },
    { kind = 'concat', branches = [[], [{ kind = 'relu' }]] },
    { kind = 'reshape', dims = [9, 8] },
    { kind = 'conv1d', inputs = 8, outputs = 8, kernel = 3, padding = 1 },
    { kind = 'softmax' },
    { kind = 'reshape', dims = [3, 3, 8] },
    { kind = 'global_average' },
    { kind = 'flatten' },
    { kind = 'linear', inputs = 8, outputs = 5 },
]
";

fn config(text: &str) -> Config {
    Config::parse("my.toml", text, &[], &[]).expect("a right config")
}

#[track_caller]
fn refused(text: &str, part: &str) {
    let said = match Config::parse("my.toml", text, &[], &[]) {
        Ok(config) => compose::model(&config).expect_err("it cannot be").to_string(),
        Err(error) => error.to_string(),
    };
    has(&said, &[part]);
}

fn a_stack(entry: &str) -> String {
    format!("[model]\nkind = 'stack'\nstack = [{entry}]")
}

/// What is planned for one row is what the stages hold, to the byte, for several rows too.
fn holds_what_is_planned(text: &str, data: &dyn DataSource) {
    let config = config(&format!("{text}\n[pipeline]\nmicro_batches = 1\nmicro_batch_size = 3\n"));
    let names = compose::model(&config).expect("a model").names().len();
    let plan = compose::plan(&config).expect("a plan");
    let costs = compose::estimated_costs(&config, &plan, 1.0).expect("costs");
    let planned = costs.of(plan.replicas.largest().placement()).expect("as many stages");
    let saved: f64 = planned.iter().map(|cost| cost.saved).sum();
    let (mut wire, _) = data.micro_batch(0, MicroBatch(0)).expect("random data");
    let ctx = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
    let mut held = 0;
    for stage in compose::stages(&config, &plan.counts).expect("stages") {
        let mut stage = stage.build().expect("possible sizes");
        let input = stage.load(wire).expect("numbers");
        let (output, kept) = stage.forward(ctx, input).expect("forward");
        held += kept.bytes();
        wire = output;
    }
    // Batch norm keeps two numbers a channel of the micro-batch, not of each row.
    let of_channels = if text.contains("batch_norm") { 2 * 4 * 4 * 2 } else { 0 };
    assert!((saved - held as f64).abs() <= f64::from(of_channels), "{saved} and {held}");
    assert!(names >= 4);
}

#[test]
fn a_stack_of_tokens_and_one_of_images_hold_what_is_planned() {
    let tokens = RandomTokens { rows: 3, seq: 8, vocab: 43 };
    holds_what_is_planned(TEXT, &tokens);
    let images = RandomRows { rows: 3, width: 36, classes: 5 };
    holds_what_is_planned(IMAGES, &images);
}

/// The units' names are numbers, and so are the beginnings of parameters' names.
#[test]
fn parameters_are_named_by_the_place_of_their_layer() {
    let model = compose::model(&config(TEXT)).expect("a model");
    assert_eq!(model.names(), ["0", "1", "2", "3"]);
    let contents = model.contents().expect("it can be built");
    let names: Vec<&str> =
        contents.iter().flat_map(|unit| &unit.parameters).map(|one| one.name.as_str()).collect();
    for name in ["1.0.weight", "1.1.weight", "2.0.0.bias", "2.1.0.weight", "3.weight", "3.bias"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Sizes {
    outside: usize,
    inside: usize,
}

fn register() {
    let make = |place: &LayerPlace, sizes: Sizes| {
        let linear = |which: &str, sizes| {
            Linear::new(&format!("{}.{which}", place.name), sizes, Init::Normal(0.1), place.seed)
        };
        let down = linear("down", [sizes.outside, sizes.inside]);
        Ok(Block::residual(&place.name, chain![down, linear("up", [sizes.inside, sizes.outside])]))
    };
    register_layer("my.bottleneck", make).expect("the name has a dot");
}

#[test]
fn a_layer_of_ones_own_stands_beside_ready_ones() {
    register();
    let text = a_stack(
        "{ kind = 'my.bottleneck', outside = 36, inside = 2 }, { kind = 'residual', layers = [{ kind = \
         'my.bottleneck', outside = 36, inside = 3 }] }",
    );
    let config = config(&format!("{text}\nimage = [1, 1, 36]\n[data]\nkind = 'idx'\npath = 'x'"));
    let contents = compose::model(&config).expect("a model").contents().expect("it can be built");
    let dims: Vec<(&str, &[usize])> = contents
        .iter()
        .flat_map(|unit| &unit.parameters)
        .filter(|one| one.dims.len() > 1)
        .map(|one| (one.name.as_str(), &one.dims[..]))
        .collect();
    let expected: [(&str, &[usize]); 4] = [
        ("0.down.weight", &[2, 36]),
        ("0.up.weight", &[36, 2]),
        ("1.0.down.weight", &[3, 36]),
        ("1.0.up.weight", &[36, 3]),
    ];
    assert_eq!(dims, expected);
}

#[test]
fn stacks_that_cannot_be_are_refused_by_layer() {
    register();
    for (entry, part) in [
        (
            "",
            "my.toml:3: model.stack: a stack needs layers: add a table [[model.stack]] with a kind for each",
        ),
        ("{ inputs = 3 }", "layer 0 has no kind: add one, such as kind = \"linear\""),
        ("{ kind = 7 }", "layer 0 has no kind"),
        ("{ kind = 'linaer' }", "layer 0 is of an unknown kind \"linaer\": did you mean \"linear\"?"),
        ("{ kind = 'x' }", "layer 0 is of an unknown kind \"x\"; known are attention, batch_norm,"),
        (
            "{ kind = 'our.swish' }",
            "layer 0 is of an unknown kind \"our.swish\": a name with a dot is that of a layer of a \
             program's own, so run this command with that program, which has all commands of `pipewright`",
        ),
        ("{ kind = 'linear', inputs = 3 }", "layer 0: missing field `outputs`"),
        ("{ kind = 'linear', inputs = 3, outputs = -1 }", "layer 0: invalid value: integer `-1`"),
        ("{ kind = 'relu', beta = 1 }", "layer 0: unknown field `beta`"),
        (
            "{ kind = 'linear', inputs = 3, outputs = 99999999999 }",
            "layer 0: 99999999999 is too large: at most 16777216",
        ),
        ("{ kind = 'relu' }, { kind = 'dropout', rate = 1.5 }", "model.stack: 1"),
        (
            "{ kind = 'residual', layers = [{ kind = 'relu' }, { kind = 'rleu' }] }",
            "layer 0.1 is of an unknown kind \"rleu\"",
        ),
        (
            "{ kind = 'sum', branches = [[], [{ kind = 'gelu', form = 1 }]] }",
            "layer 0.1.0: unknown field `form`",
        ),
        ("{ kind = 'my.bottleneck', outside = 3 }", "layer 0: missing field `inside`"),
    ] {
        refused(&a_stack(entry), part);
    }
    refused("[model]\nstack = [{ kind = 'relu' }]", "model.stack is for model.kind = \"stack\"");
    refused(
        "[model]\nkind = 'stack'\nimage = [3, 4]\n[data]\nkind = 'idx'\npath = 'x'",
        "model.image: give height, width",
    );
    let own = |place: &LayerPlace, _: Sizes| Ok(Linear::new(&place.name, [1, 1], Init::Zeros, 0));
    let said = register_layer("swish", own).unwrap_err().to_string();
    assert_eq!(said, "\"swish\" has no dot: name layers of your own such as \"my.swish\"");
}
