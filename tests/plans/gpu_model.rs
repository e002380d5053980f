//! What the model of a GPU predicts, against cases computed by hand and against what was measured on an H100.

use pipewright::plan::{Kernel, Work};
use pipewright_cli::compose::{PipelinePlan, UnitKernels};

use super::*;

/// GPT-2 with 124 million parameters, 8 micro-batches of 16 x 1,024 tokens.
const GPT2: &str = "\
[model]\nkind = \"gpt\"\nvocab = 50304\ndim = 768\nlayers = 12\nheads = 12\ntied = true\n\
[data]\nkind = \"tokens\"\npath = \"tokens.bin\"\nseq = 1024\n\
[pipeline]\nstages = 1\nmicro_batches = 8\nmicro_batch_size = 16\nschedule = \"1f1b\"\ndtype = \"bf16\"\n";

fn config(sets: &[&str]) -> Config {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    Config::parse("gpt2.toml", GPT2, &[], &sets).expect("a config")
}

fn h100() -> &'static Gpu {
    Gpu::named("h100").expect("a known kind")
}

fn time(gpu: &Gpu, work: Work) -> f64 {
    let kernel = Kernel { name: "", work, launches: 1 };
    gpu.time(&kernel)
}

fn product(size: [usize; 2], inner: usize, bytes: usize) -> Work {
    Work::Product { size, inner, bytes }
}

/// Seconds of a step of this config on such GPUs.
fn step(config: Config, gpu: &Gpu) -> f64 {
    let (config, _) = compose::with_gpus(config, gpu).expect("a schedule");
    let plan = compose::plan_for(&config, gpu).expect("a plan");
    plan.prediction.expect("a prediction").step
}

fn assert_near(predicted: f64, measured: f64, tolerance: f64, what: &str) {
    let apart = (predicted / measured - 1.0).abs();
    assert!(apart <= tolerance, "{what}: predicted {predicted}, measured {measured}");
}

#[test]
fn bytes_take_their_share_of_the_bandwidth_and_a_launch() {
    // 2.948 TB/s are 0.88 of 3.35.
    assert_near(time(h100(), Work::Bytes(2.948e9)), 1.004e-3, 1e-9, "1 ms and 4 us");
}

#[test]
fn a_product_takes_whole_waves_of_tiles() {
    // 132 tiles of 128 x 256: 2 x 1536 x 2816 x 8192 operations at 0.82 x 989.4 T, 0.5 us and 4 us.
    let one = 2.0 * 1536.0 * 2816.0 * 8192.0 / (0.82 * 989.4e12) + 4.5e-6;
    assert_near(time(h100(), product([1536, 2816], 8192, 2)), one, 1e-9, "one wave");
    // One row more takes a wave of smaller tiles more, at least.
    let more = time(h100(), product([1537, 2816], 8192, 2));
    assert!(more > 1.4 * one, "{more} {one}");
}

#[test]
fn sums_of_a_product_with_few_tiles_are_cut_in_parts() {
    let whole = 2.0 * 128.0 * 256.0 * 16384.0 * 132.0 / (0.82 * 989.4e12);
    let cut = time(h100(), product([768, 768], 16384, 4));
    assert!(cut < whole / 3.0, "{cut} {whole}");
}

#[test]
fn a_product_with_a_short_sum_takes_at_least_the_time_of_its_bytes() {
    let bytes = 2.0 * 16384.0 * 16384.0 + 2.0 * 2.0 * 16.0 * 16384.0;
    let least = time(h100(), Work::Bytes(bytes));
    let predicted = time(h100(), product([16384, 16384], 16, 2));
    assert!((1.0..1.25).contains(&(predicted / least)), "{predicted} {least}");
}

/// The table of kernels in benches/RESULTS.md, microseconds. Without the sums of biases, which it names.
#[test]
fn kernels_are_predicted_as_they_were_measured_on_an_h100() {
    let rows = 16384;
    let bytes = |of_row: usize| Work::Bytes((rows * of_row) as f64);
    let attention = |products: f64, backward| Work::Attention {
        operations: products * 16.0 * 12.0 * 1024.0 * 1024.0 * 64.0,
        backward,
    };
    let measured = [
        (product([rows, 2304], 768, 2), 88.5),
        (product([rows, 768], 2304, 2), 84.7),
        (product([768, 2304], rows, 4), 124.6 - 36.0),
        (product([rows, 768], 768, 2), 35.2),
        (product([768, 768], rows, 4), 58.6 - 15.0),
        (product([rows, 3072], 768, 2), 116.9),
        (product([rows, 768], 3072, 2), 107.1),
        (product([768, 3072], rows, 4), 156.6 - 45.0),
        (product([3072, 768], rows, 4), 125.2 - 14.0),
        (product([4096, 50304], 768, 2), 395.6),
        (product([4096, 768], 50304, 2), 394.8),
        (product([768, 50304], 4096, 4), 434.2),
        (attention(2.0, false), 117.4),
        (bytes(2 * 2 * 768), 23.3),
        (bytes(2 * 2 * 3072), 71.4),
        (bytes(2 * 3 * 3072), 102.7),
        (Work::Bytes(4096.0 * 4.0 * 50304.0), 353.6),
        (Work::Bytes(30.0 * 38_633_472.0), 391.1),
    ];
    for (work, measured) in measured {
        assert_near(1e6 * time(h100(), work), measured, 0.25, &format!("{work:?}"));
    }
    // The backward is three kernels. One of them only reads outputs and their gradients.
    let backward = time(h100(), attention(7.0, true)) + time(h100(), bytes(2 * 2 * 768)) + 4e-6;
    assert_near(1e6 * backward, 349.2, 0.1, "attention's backward");
}

/// What was measured had a kernel for each residual's sum, forward and backward: three accesses and a launch
/// where one access is left. And each of 148 parameters had a launch for its update, and one for its part of
/// the norm. And each layer read a gradient once more to add up its columns for a bias, after GELU.
#[test]
fn a_step_of_gpt2_is_predicted_as_it_was_measured_on_an_h100() {
    let accesses = Work::Bytes(2.0 * 2.0 * 16384.0 * 768.0);
    let columns = 8.0 * 12.0 * time(h100(), Work::Bytes(2.0 * 16384.0 * 3072.0));
    let sums = 8.0 * 2.0 * 24.0 * time(h100(), accesses) + columns;
    let launches = 2.0 * 148.0 * time(h100(), Work::Bytes(0.0));
    let rate = 8.0 * 16.0 * 1024.0 / (step(config(&[]), h100()) + sums + launches);
    // Three runs on two machines.
    for measured in [489_573.0, 489_180.0, 493_838.0] {
        assert_near(rate, measured, 0.06, "tokens a second");
    }
}

/// The kernels of GPT-2.
fn model() -> Vec<UnitKernels> {
    compose::gpu_kernels(&config(&[])).expect("kernels")
}

/// By arithmetic before: 18.4 GB of activations and 12.15 TFLOP of products a micro-batch. Since then four of
/// six accesses of each residual's sums are saved, and one of the gradient before each GELU.
#[test]
fn bytes_and_operations_of_gpt2_are_those_of_the_layers() {
    let units = model();
    let kernels = || {
        let passes = units.iter().map(|unit| [&unit.forward, &unit.backward_input, &unit.backward_weight]);
        passes.flatten().flatten()
    };
    let operations = kernels().map(|kernel| match kernel.work {
        Work::Product { size, inner, .. } => 2.0 * (size[0] * size[1] * inner) as f64,
        _ => 0.0,
    });
    assert_near(operations.sum(), 12.15e12, 0.002, "operations of products");
    let outer = ["embedding", "embedding backward", "cross-entropy"];
    let bytes = kernels().map(|kernel| match kernel.work {
        Work::Bytes(bytes) if !outer.contains(&kernel.name) => bytes,
        _ => 0.0,
    });
    let saved = 24.0 * 4.0 * 2.0 * 16384.0 * 768.0 + 12.0 * 2.0 * 16384.0 * 3072.0;
    assert_near(bytes.sum(), 18.4e9 - saved, 0.02, "bytes of activations");
    let weights: usize = units.iter().map(|unit| unit.weights).sum();
    assert_eq!(weights, 124_475_904, "the weights that are updated");
}

/// How many kernels of this name each pass of the model has.
fn kernels_called(units: &[UnitKernels], name: &str) -> [usize; 3] {
    let count = |kernels: fn(&UnitKernels) -> &Vec<Kernel>| {
        units.iter().flat_map(kernels).filter(|kernel| kernel.name == name).count()
    };
    [count(|unit| &unit.forward), count(|unit| &unit.backward_input), count(|unit| &unit.backward_weight)]
}

#[test]
fn sums_for_a_bias_read_its_gradient_unless_gelu_makes_them() {
    let read = |sets: &[&str]| {
        let units = compose::gpu_kernels(&config(sets)).expect("kernels");
        let kernels = units.into_iter().flat_map(|unit| unit.backward_weight);
        let sums = kernels.filter(|kernel| kernel.name == "sums of bias gradients");
        let counts = sums.map(|kernel| match kernel.work {
            Work::Bytes(bytes) => (bytes / (2.0 * 16384.0 * 768.0), kernel.launches),
            _ => panic!("sums are bytes: {kernel:?}"),
        });
        counts.collect::<Vec<_>>()
    };
    // For queries, keys and values; after attention; before GELU; and after it.
    let of_layer = [(3.0, 2), (1.0, 2), (0.0, 1), (1.0, 2)];
    assert_eq!(read(&[]), of_layer.repeat(12));
    let frozen = ["optimizer.groups=[{ parameters = ['*.c_fc.bias'], frozen = true }]"];
    assert_eq!(read(&frozen), [of_layer[0], of_layer[1], of_layer[3]].repeat(12));
}

#[test]
fn adapters_have_kernels_and_frozen_weights_have_none() {
    let lora = ["lora.rank=8", "lora.targets=[\"*\"]"];
    let units = compose::gpu_kernels(&config(&lora)).expect("kernels");
    assert_eq!(kernels_called(&units, "product backward-weight"), [0; 3]);
    assert_eq!(kernels_called(&units, "sums of bias gradients"), [0; 3]);
    // Of four matrices in each of 12 layers.
    assert_eq!(kernels_called(&units, "adapters"), [2 * 48, 2 * 48, 2 * 48]);
    // Branches computed again: the adapters of the first product, and a half of each adapter of the last one.
    let again = compose::gpu_kernels(&config(&[&lora[..], &["pipeline.recompute=selective"]].concat()));
    let again = kernels_called(&again.expect("kernels"), "adapters");
    assert_eq!(again, [2 * 48, 2 * 48 + (2 + 1) * 24, 2 * 48]);
    // Dropout copies their input, and keeps their input gradient apart.
    let dropped =
        compose::gpu_kernels(&config(&[&lora[..], &["lora.dropout=0.1"]].concat())).expect("kernels");
    assert_eq!(kernels_called(&dropped, "adapters"), [3 * 48, 4 * 48, 3 * 48]);
    assert!(units[0].backward_input.is_empty() && units[0].backward_weight.is_empty(), "{:?}", units[0]);
    assert_eq!(kernels_called(&units, "product forward"), kernels_called(&model(), "product forward"));
    let weights: usize = units.iter().map(|unit| unit.weights).sum();
    let of_layer = (768 + 2304) + (768 + 768) + 2 * (768 + 3072);
    assert_eq!(weights, 12 * 8 * of_layer, "the weights of adapters");
    // The wider the layers are, the more time the gradients of their weights take beside adapters.
    let share = |sizes: &[&str]| {
        let [with, without] = [&lora[..], &[]].map(|more| step(config(&[sizes, more].concat()), h100()));
        with / without
    };
    let [narrow, wide] = [&[][..], &["model.dim=4096", "model.heads=32"]].map(share);
    assert!(wide < 0.85 && wide < narrow, "{wide} {narrow}");
}

#[test]
fn frozen_matrices_take_two_bytes_a_number() {
    let weights = |sets: &[&str]| {
        let (config, _) = compose::with_gpus(config(sets), h100()).expect("a schedule");
        let plan = compose::plan_for(&config, h100()).expect("a plan");
        let ranks = compose::memory(&config, &plan).expect("known sizes");
        ranks.iter().map(|rank| rank.weights).sum::<f64>()
    };
    // All weights and the tied table of the head, in f32 and bf16; and the vectors of frozen layers.
    let [all, frozen] = [weights(&[]), weights(&["lora.rank=1"])];
    assert!((1.0 / 3.0..0.34).contains(&(frozen / all)), "{frozen} of {all}");
}

#[test]
fn branches_that_are_computed_again_are_in_the_backward() {
    let again = compose::gpu_kernels(&config(&["pipeline.recompute=selective"])).expect("kernels");
    let once = model();
    // The last product of each branch is not computed again.
    for (name, more) in [("product forward", 2), ("attention", 1), ("norm", 2), ("gelu", 1)] {
        let [before, after] = [&once, &again].map(|units| kernels_called(units, name));
        assert_eq!(after, [before[0], before[1] + 12 * more, before[2]], "{name}");
    }
    let kept = compose::gpu_kernels(&config(&["pipeline.recompute=none"])).expect("kernels");
    // A block has two norms before products, and the last unit has one before the scores, which are deferred.
    let [before, after] = [&once, &kept].map(|units| kernels_called(units, "norm"));
    assert_eq!((before[2], after[2]), (24, 0));
    let steps = ["none", "cheap", "selective", "full"]
        .map(|how| step(config(&[&format!("pipeline.recompute={how}")]), h100()));
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
}

#[test]
fn newer_gpus_are_faster_and_more_stages_share_the_work() {
    for kinds in [
        &["a100", "h100", "h200", "b200"][..],
        &["a10g", "a10", "rtx4090", "l40s"],
        &["rtx3090", "a6000", "rtx6000ada"],
    ] {
        let gpus = kinds.iter().map(|name| Gpu::named(name).expect("a known kind"));
        let steps: Vec<f64> = gpus.map(|gpu| step(config(&[]), gpu)).collect();
        assert!(steps.windows(2).all(|pair| pair[1] < pair[0]), "{kinds:?} {steps:?}");
    }
    let four = ["pipeline.stages=4", "pipeline.micro_batches=32"];
    let (four, one) = (step(config(&four), h100()), step(config(&four[1..]), h100()));
    assert!(four > one / 4.0 && four < one / 3.0, "{four} {one}");
}

/// Of GPT-2 with 124 million weights AdamW has 8 bytes each, which go to the GPU and back at once.
#[test]
fn an_update_with_state_on_the_host_takes_the_time_of_its_copies() {
    let bytes = 8.0 * 124.5e6;
    let update = |gpu: &Gpu, state: &[&str]| {
        let on_gpu = compose::plan_for(&compose::with_gpus(config(state), gpu).unwrap().0, gpu).unwrap();
        let costs = on_gpu.costs.expect("figures");
        costs.stage(0..costs.layers().len()).update
    };
    let host = "optimizer.state_on_host=true";
    for name in ["h100", "rtx4090"] {
        let gpu = Gpu::named(name).expect("a known kind");
        let copies = bytes * gpu.host_byte();
        assert_near(update(gpu, &[host]), copies, 0.01, name);
        assert!(update(gpu, &[]) < 0.25 * copies, "{name}");
        assert_near(update(gpu, &[host, "optimizer.state=bf16"]), copies / 2.0, 0.01, name);
        let sharded = [host, "pipeline.replicas=2", "optimizer.sharded=true"];
        assert_near(update(gpu, &sharded), copies / 2.0, 0.01, name);
        // Of adapters there is little to copy.
        assert!(update(gpu, &[host, "lora.rank=8"]) < 0.01 * copies, "{name}");
        let step = |sets: &[&str]| step(config(sets), gpu);
        assert_near(step(&[host]) - step(&[]), copies - update(gpu, &[]), 0.01, name);
    }
}

#[test]
fn a_llama_is_predicted_too() {
    let llama = ["model.kind=llama", "model.kv_heads=4", "model.ffn=2048", "model.tied=false"];
    let units = compose::gpu_kernels(&config(&llama)).expect("kernels");
    assert_eq!(units.len(), 26);
    assert!(step(config(&llama), h100()) > 0.0);
}

/// Documents of 256 tokens in sequences of up to 1,024.
#[test]
fn documents_take_what_their_tokens_and_pairs_take() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut paths = Vec::new();
    for document in 0..300_u16 {
        let path = folder.path().join(format!("{document:03}.bin"));
        let tokens = (0..256).flat_map(|token: u16| (document + token).to_le_bytes());
        std::fs::write(&path, tokens.collect::<Vec<_>>()).expect("a file");
        paths.push(path.display().to_string());
    }
    let path = format!("data.path={paths:?}");
    let of = |packing: &str, path: &str| {
        let sets = [&format!("data.packing={packing}"), path, "data.validation=0"];
        let config = config(&sets);
        let units = compose::gpu_kernels(&config).expect("kernels");
        let forward = units.iter().flat_map(|unit| &unit.forward);
        let (mut rows, mut operations) = (0, 0.0);
        for kernel in forward {
            match kernel.work {
                Work::Product { size, .. } => rows = rows.max(size[0]),
                Work::Attention { operations: of_kernel, .. } => operations += of_kernel,
                Work::Bytes(_) => {}
            }
        }
        (rows, operations / (4.0 * 768.0 * 12.0), compose::plan_for(&config, h100()).expect("a plan"))
    };
    // A document is as long as a row has room for, and ends with a token that only has to be found.
    let (rows, pairs, plan) = of("single", &path);
    let tokens = plan.tokens.expect("micro-batches differ");
    assert!((250.0 * 16.0..=256.0 * 16.0).contains(&tokens), "{tokens}");
    assert_eq!(rows, 16 * 256);
    assert_near(pairs, 16.0 * 256.0 * 257.0 / 2.0, 0.02, "pairs");
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    let (rows, pairs, plan) = of("apart", &path);
    assert_eq!(rows, 16 * 1024);
    assert_near(pairs, 4.0 * 16.0 * 256.0 * 257.0 / 2.0, 0.02, "pairs");
    let (rows, pairs, joined) = of("joined", &path);
    assert_eq!((rows, joined.tokens), (16 * 1024, None));
    assert_near(pairs, 16.0 * 1024.0 * 1024.0 / 2.0, 0.02, "pairs");
    let step = |plan: &PipelinePlan| plan.prediction.as_ref().expect("costs are known").step;
    assert!(step(&plan) < step(&joined));
    // Without the data, all sequences count as full.
    let (rows, _, plan) = of("single", "data.path=nowhere.bin");
    assert_eq!((rows, plan.tokens), (16 * 1024, None));
    has(&plan.warnings[0], &["the data cannot be read", "nowhere.bin"]);
}

#[test]
fn what_is_not_modelled_is_refused_by_its_key() {
    for (sets, key) in [
        (vec!["pipeline.dtype=f32"], "pipeline.dtype"),
        (vec!["model.heads=24"], "model.heads"),
        (vec!["optimizer.kind=muon"], "optimizer.kind"),
        (vec!["model.kind=mixtral"], "model.kind"),
    ] {
        let Ok(config) = Config::parse(
            "gpt2.toml",
            GPT2,
            &[],
            &sets.iter().map(|set| (*set).to_owned()).collect::<Vec<_>>(),
        ) else {
            panic!("{sets:?} is no config");
        };
        has(&compose::plan_for(&config, h100()).expect_err(key), &[key, "--device"]);
    }
}
