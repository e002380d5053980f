//! Mistakes in the keys of Llama and its kin, and in folders of Hugging Face.

use super::*;

/// A folder of a small model, as transformers wrote it.
fn folder(family: &str) -> PathBuf {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    root.join("tests/golden/hf").join(family)
}

/// What is said of a llama with these settings.
fn said_of_llama(sets: &[&str]) -> String {
    refused(with_sets("[model]\nkind = 'llama'\n", sets))
}

/// What is said of a config that starts from this folder, with the folder as F.
fn said_of_folder(folder: &Path, rest: &str) -> String {
    let path = folder.display().to_string();
    let result = parse(&format!("[model]\npath = '{path}'\n{rest}"));
    result.expect_err("a refusal").to_string().replace(&path, "F")
}

#[test]
fn keys_of_llama_are_refused_for_other_models() {
    all_refused(&[
        (
            "[model]\nkv_heads = 2",
            &[
                "my.toml:2: model.kv_heads is for model.kind = \"llama\" or \"mistral\" or ",
                "\"qwen2\" or \"qwen3\", and this config has \"gpt\"",
            ],
        ),
        ("[model]\nhead_width = 2", &["model.head_width is for model.kind"]),
        ("[model]\nffn = 2", &["model.ffn is for model.kind"]),
        ("[model]\nrope_theta = 2", &["model.rope_theta is for model.kind"]),
        ("[model]\nrope_scaling = 'linear'", &["model.rope_scaling is for model.kind"]),
        ("[model]\nnorm_epsilon = 2", &["model.norm_epsilon is for model.kind"]),
        (
            "[model]\nkind = 'llama'\nwindow = 8",
            &["my.toml:3: model.window is for model.kind = \"mistral\" or \"mixtral\" or \"qwen2\""],
        ),
        (
            "[model]\nkind = 'llama'\nrope_factor = 8",
            &["model.rope_factor is for model.rope_scaling = \"linear\" or \"llama3\" or \"yarn\""],
        ),
        (
            "[model]\nkind = 'llama'\nrope_scaling = 'linear'\nrope_low = 8",
            &["my.toml:4: model.rope_low is for model.rope_scaling = \"llama3\""],
        ),
        (
            "[model]\nkind = 'llama'\nrope_scaling = 'linear'\nrope_high = 8",
            &["model.rope_high is for model.rope_scaling = \"llama3\""],
        ),
        (
            "[model]\nkind = 'llama'\nrope_scaling = 'linear'\nrope_original = 8",
            &["model.rope_original is for model.rope_scaling = \"llama3\" or \"yarn\""],
        ),
        ("[model]\nkind = 'qwen3'\ndropout = 0.1", &["model.dropout is for model.kind = \"gpt\" or \"mlp\""]),
        ("[model]\nkind = 'qwen2'\nsizes = '3,4'", &["model.sizes is for model.kind = \"mlp\""]),
        ("[data]\nkind = 'idx'\n[model]\nkind = 'mistral'", &["a model of kind \"mistral\" takes tokens"]),
    ]);
}

#[test]
fn keys_of_documents_are_refused_for_other_data() {
    for key in ["field = 'x'", "template = 'chatml'"] {
        has(&refused(parse(&format!("[data]\n{key}"))), &["is for data.kind = \"jsonl\" or \"parquet\""]);
    }
    for key in ["end_of_text = 'x'", "cache = 'x'"] {
        let said = refused(parse(&format!("[data]\nkind = 'tokens'\n{key}")));
        has(&said, &["is for data.kind = \"text\" or \"jsonl\" or \"parquet\""]);
    }
    let said = refused(parse("[model]\nkind = 'mlp'\n[data]\nkind = 'idx'\ntokenizer = 'x'"));
    has(&said, &["my.toml:5: data.tokenizer is for data.kind = \"text\" or \"tokens\""]);
    has(&refused(parse("[data]\ndtype = 'u16'")), &["data.dtype is for data.kind = \"tokens\""]);
    let said = refused(parse("[data]\nkind = 'tokens'\ndtype = 'i32'"));
    has(&said, &["my.toml:3: data.dtype: expected `u16` or `u32`, got \"i32\""]);
    let said = refused(parse("[data]\nkind = 'jsonl'\ntokenizer = 'x'\nloss_on = 'questions'"));
    has(&said, &["data.loss_on: expected `all` or `answers`"]);
    let said = refused(parse("[data]\nkind = 'jsonl'\ntokenizer = 'x'\npacking = 1"));
    has(&said, &["data.packing: expected \"joined\", \"single\", \"apart\", true or false, got 1"]);
}

#[test]
fn impossible_settings_of_a_llama_say_what_to_do() {
    for (sets, expected) in [
        (
            &["model.heads=6", "model.dim=96", "model.kv_heads=4"][..],
            "model.kv_heads: 6 heads cannot share 4 heads for keys and values: choose from 1, 2, 3, 6",
        ),
        (
            &["model.head_width=7"],
            "--set: model.head_width: a head of 7 numbers cannot be turned by its position: the width must \
             be even",
        ),
        (
            &["model.dim=36", "model.heads=4"],
            "model.head_width: a head of 9 numbers cannot be turned by its position: the width must be even",
        ),
        (
            &["model.dim=36", "model.heads=5"],
            "--set: model.heads: model.dim 36 is not divisible by 5 heads: choose from 1, 2, 3, 4, 6, 9, 12, \
             18, 36",
        ),
        (
            &["model.context=64", "data.seq=65"],
            "--set: data.seq: sequences of 65 tokens are longer than the model's 64: lower it, or raise \
             model.context",
        ),
        (
            &["model.vocab=300", "model.padding_token=300"],
            "--set: model.padding_token: 300 is no token of 300: choose one below 300, or leave the key out",
        ),
        (&["model.rope_theta=inf"], "--set: model.rope_theta: inf is not allowed: it must be above 0"),
        (&["model.norm_epsilon=-1"], "--set: model.norm_epsilon: -1 is not allowed: it must be above 0"),
        (
            &["model.rope_scaling=linear", "model.rope_factor=0"],
            "--set: model.rope_factor: 0 is not allowed: it must be above 0",
        ),
        (
            &["model.rope_scaling=llama3", "model.rope_low=-1"],
            "--set: model.rope_low: -1 is not allowed: it must be above 0",
        ),
        (
            &["model.rope_scaling=llama3", "model.rope_high=nan"],
            "--set: model.rope_high: NaN is not allowed: it must be above 0",
        ),
        (
            &["model.rope_scaling=llama3", "model.rope_low=4"],
            "--set: model.rope_low: 4 is not allowed: it must be below model.rope_high",
        ),
        (
            &["model.rope_scaling=dynamic"],
            "--set: model.rope_scaling: expected one of `none`, `linear`, `llama3`, `yarn`, got \"dynamic\"",
        ),
        (&["model.kv_heads=half"], "--set: model.kv_heads: expected a whole number, 0 or more, got \"half\""),
        (&["model.ffn=-1"], "--set: model.ffn: expected a whole number, 0 or more, got -1"),
        (&["model.rope_theta=long"], "--set: model.rope_theta: expected a number, got \"long\""),
    ] {
        let said = said_of_llama(sets);
        assert!(said.contains(expected), "{sets:?} said {said:?}, without {expected:?}");
    }
}

#[test]
fn impossible_experts_say_what_to_do() {
    all_refused(&[
        (
            "[model]\nkind = 'llama'\nexperts = 4",
            &["my.toml:3: model.experts is for model.kind = \"mixtral\", and this config has \"llama\""],
        ),
        (
            "[model]\nkind = 'mixtral'\nexperts = 4\nexperts_per_token = 5",
            &["my.toml:4: model.experts_per_token: a token cannot choose 5 of 4 experts: lower it, or raise"],
        ),
        (
            "[model]\nkind = 'mixtral'\nauxiliary = -0.5",
            &["my.toml:3: model.auxiliary: -0.5 is not allowed: it must be 0 or more"],
        ),
        ("[model]\nkind = 'mixtral'\nexperts = 0", &["my.toml:3: model.experts: is 0: set it to 1 or more"]),
    ]);
}

#[test]
fn zero_is_refused_in_a_llama_where_there_must_be_one() {
    for (kind, key) in
        [("llama", "kv_heads"), ("llama", "head_width"), ("llama", "ffn"), ("mistral", "window")]
    {
        let said = refused(with_sets(&format!("[model]\nkind = '{kind}'"), &[&format!("model.{key}=0")]));
        assert_eq!(said, format!("--set: model.{key}: is 0: set it to 1 or more"));
    }
    let said = said_of_llama(&["model.rope_scaling=llama3", "model.rope_original=0"]);
    assert_eq!(said, "--set: model.rope_original: is 0: set it to 1 or more");
}

#[test]
fn sizes_of_a_llama_beyond_any_machine_are_refused_with_the_limit() {
    for (sets, expected) in [
        (
            &["model.context=9999999"][..],
            "--set: model.context: 9999999 is too large: at most 1048576 tokens",
        ),
        (&["model.ffn=99999999"], "--set: model.ffn: 99999999 is too large: at most 16777216 numbers"),
        (
            &["model.heads=99999999", "model.dim=99999999"],
            "--set: model.dim: 99999999 is too large: at most 16777216",
        ),
        (
            &["model.heads=99999999", "model.head_width=2"],
            "--set: model.heads: 99999999 is too large: at most 16777216 heads",
        ),
        (
            &["model.head_width=99999998"],
            "--set: model.head_width: 99999998 is too large: at most 16777216 numbers",
        ),
        (
            &["model.heads=4096", "model.head_width=16777216"],
            "model.dim: a block's widest matrix would have 12288 x 128 x 16777216 numbers",
        ),
        (
            &["model.vocab=16777216", "pipeline.micro_batch_size=4096", "model.dim=4", "model.heads=1"],
            "pipeline.micro_batch_size: the scores of all tokens would have 4096 x 128 x 16777216 numbers",
        ),
    ] {
        let said = said_of_llama(sets);
        assert!(said.contains(expected), "{sets:?} said {said:?}, without {expected:?}");
    }
}

#[test]
fn a_folder_that_is_no_model_is_refused_where_it_is_named() {
    let scratch = tempfile::tempdir().expect("a folder");
    let said = said_of_folder(scratch.path(), "");
    assert!(said.starts_with("`F` is no model's folder: it has no config.json"), "{said}");
    let said = said_of_folder(&scratch.path().join("none"), "");
    assert!(said.starts_with("`F` is no model's folder: it has no config.json"), "{said}");
    assert_eq!(
        parse("[model]\npath = 'HuggingFaceTB/SmolLM2-135M'").unwrap_err().to_string(),
        "`HuggingFaceTB/SmolLM2-135M` is no model's folder: it has no config.json; a folder of Hugging Face \
         has one, and `pipewright import` makes one from a .gguf file; nothing is downloaded by itself: if \
         it is a name of the hub, `hf download HuggingFaceTB/SmolLM2-135M --local-dir models/SmolLM2-135M`, \
         and name that folder"
    );
    fs::write(scratch.path().join("config.json"), r#"{"architectures": ["BertModel"]}"#).expect("written");
    let said = said_of_folder(scratch.path(), "");
    has(&said, &["`BertModel` is not known; known are GPT2LMHeadModel, LlamaForCausalLM, Mistral"]);
    has(&refused(parse("[model]\npath = 3")), &["my.toml:2: model.path: expected text in quotes, got 3"]);
}

#[test]
fn what_a_folder_decides_is_not_decided_again() {
    let llama = folder("llama");
    let said = said_of_folder(&llama, "layers = 3\n[data]\nseq = 16");
    assert_eq!(
        said,
        "my.toml:3: model.layers comes from the folder of model.path, `F`: remove it, or remove model.path"
    );
    let said = said_of_folder(&llama, "[data]\nseq = 16000");
    has(&said, &["my.toml:4: data.seq: sequences of 16000 tokens are longer than the model's"]);
}

#[test]
fn a_tokenizer_or_weights_that_do_not_fit_a_folders_model_are_refused() {
    let llama = folder("llama");
    let tokenizer = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/golden/tokenizer");
    let config = |folder: &Path| {
        let (folder, tokenizer) = (folder.display(), tokenizer.display());
        let text = format!("[model]\npath = '{folder}'\n[data]\nseq = 16\ntokenizer = '{tokenizer}'\n");
        parse(&format!("{text}path = 'builtin:shakespeare'")).expect("a right config")
    };
    let said = compose::data(&config(&llama)).expect_err("refused").to_string();
    has(&said, &["tokenizer.json` has 512 tokens, and model.vocab is 96: set model.vocab to 512 or more"]);
    let scratch = tempfile::tempdir().expect("a folder");
    fs::copy(llama.join("config.json"), scratch.path().join("config.json")).expect("copied");
    let config = config(scratch.path());
    let counts = compose::plan(&config).expect("a plan").counts;
    let said = compose::stages(&config, &counts).err().expect("refused").to_string();
    has(&said, &["has no weights: neither model.safetensors nor"]);
}

#[test]
fn another_tokenizer_than_the_models_is_told() {
    let scratch = tempfile::tempdir().expect("a folder");
    let config = fs::read_to_string(folder("llama").join("config.json")).expect("it is there");
    let config = config.replace("\"vocab_size\": 96", "\"vocab_size\": 512");
    fs::write(scratch.path().join("config.json"), config).expect("written");
    let ours =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/golden/tokenizer/tokenizer.json");
    let told = |text: &str| {
        let theirs = scratch.path().join("tokenizer.json");
        fs::write(&theirs, text).expect("written");
        let (folder, ours) = (scratch.path().display(), ours.display());
        let text = format!("[model]\npath = '{folder}'\n[data]\nseq = 16\ntokenizer = '{ours}'\n");
        let config = parse(&format!("{text}path = 'builtin:shakespeare'")).expect("a right config");
        compose::odd_tokenizer(&config).expect("both are read")
    };
    let same = fs::read_to_string(&ours).expect("it is there");
    assert!(told(&same).is_empty());
    let other = told(&same.replace("<|im_end|>", "<|im_stop|>"));
    let said = format!(
        "the tokenizer `{}` makes other tokens than `{}`, which belongs to the model: leave \
         data.tokenizer out to take that one",
        ours.display(),
        scratch.path().join("tokenizer.json").display()
    );
    assert_eq!(other, [&*said]);
    assert_eq!(told(&same.replace("\"NFC\"", "\"NFD\"")), [said]);
}
