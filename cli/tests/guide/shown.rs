//! Files that pages show, and the tables of layers.

use pipewright_cli::compose;

use super::*;
use super::{pages, root};

/// A page is read as it is, so it has no directives of mdBook. Where it has the whole of an example, that is
/// the file.
#[test]
fn pages_have_the_files_that_they_show_as_these_are() {
    let page = |name: &str| fs::read_to_string(root().join("book/src").join(name)).expect(name);
    for (name, file, language) in [
        ("adapters.md", "examples/lora-smollm2.toml", "toml"),
        ("candle.md", "candle/examples/spiral.rs", "rs"),
        ("example-mnist.md", "examples/mnist.toml", "toml"),
        ("example-resnet.md", "examples/cnn-mnist.toml", "toml"),
        ("example-resnet.md", "examples/resnet-cifar10.toml", "toml"),
        ("example-stage.md", "examples/own_stage.rs", "rs"),
        ("first-run.md", "examples/gpt-text.toml", "toml"),
        ("hugging-face.md", "examples/finetune-smollm2.toml", "toml"),
        ("own-layer.md", "examples/own_layer.rs", "rs"),
    ] {
        let text = fs::read_to_string(root().join(file)).expect(file);
        let shown = page(name).contains(&format!("```{language}\n{text}```"));
        assert!(shown, "book/src/{name} does not show {file} as it is: copy the file into the page");
    }
    for path in pages() {
        let text = fs::read_to_string(&path).expect("a page is text");
        assert!(!text.contains("{{#"), "{}", path.display());
    }
}

/// A layer is a type of `stages/src/layers` that implements `Layer` or `Pointwise`, or another name of such a
/// type.
#[test]
fn every_ready_layer_is_in_both_tables_with_its_formula_and_in_a_test_of_gradients() {
    let tests = sources(&root().join("stages/tests")).into_iter();
    let tests = tests.map(|path| fs::read_to_string(path).expect("a source is text"));
    let tests: Vec<String> = tests.filter(|text| text.contains("gradient")).collect();
    let page = fs::read_to_string(root().join("book/src/layers.md")).expect("the page is there");
    let front = fs::read_to_string(root().join("stages/src/layers/mod.rs")).expect("the list of layers");
    let lines = front.lines().filter(|line| line.starts_with("pub use"));
    let public: Vec<&str> =
        lines.flat_map(|line| line.split(|letter: char| !letter.is_alphanumeric())).collect();
    let mut layers = Vec::new();
    for path in sources(&root().join("stages/src/layers")) {
        let text = fs::read_to_string(&path).expect("a source is text");
        let implemented = text.lines().filter(|line| line.starts_with("impl"));
        let implementing = implemented.filter_map(|line| {
            let of = [" Layer for ", " Pointwise for "].map(|of| line.split_once(of));
            of.into_iter().flatten().next().map(|(_, name)| name)
        });
        let names = implementing.chain(text.lines().filter_map(|line| line.strip_prefix("pub type ")));
        let name = |name: &str| name.split(['<', ' ']).next().unwrap_or(name).to_owned();
        let file = path.strip_prefix(root()).expect("under the root").display().to_string();
        layers.extend(names.map(name).map(|name| (name, file.clone())));
    }
    layers.retain(|(name, _)| public.contains(&name.as_str()));
    assert!(layers.len() > 20, "{layers:?}");
    for (name, file) in layers {
        let row = format!("| [`{name}`](../../{file}) |");
        let (_, row) = page.split_once(&row).unwrap_or_else(|| panic!("book/src/layers.md lacks {row}"));
        let formula = row.split(" | ").nth(2).unwrap_or_default();
        assert!(formula.len() > 3, "{name}: {row}");
        assert!(front.contains(&format!("//! | [`{name}`] | ")), "stages/src/layers/mod.rs lacks {name}");
        let names =
            |text: &String| text.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == name);
        assert!(tests.iter().any(names), "no test in stages/tests checks the gradients of {name}");
    }
}

/// The files of Rust in a folder and in the folders inside it.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    files.into_iter().chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

#[test]
fn every_kind_of_layer_that_a_config_can_name_is_on_its_page() {
    let page = fs::read_to_string(root().join("book/src/layers-in-config.md")).expect("the page is there");
    let config = "[model]\nkind = 'stack'\nstack = [{ kind = 'x' }]";
    let config = Config::parse("my.toml", config, &[], &[]).expect("kinds are looked up later");
    let said = compose::model(&config).expect_err("there is no such kind").to_string();
    let (_, known) = said.split_once("known are ").expect("a list");
    let known: Vec<&str> = known.split(", ").collect();
    assert!(known.len() > 20, "{said}");
    for kind in known {
        assert!(page.contains(&format!("`{kind}`")), "book/src/layers-in-config.md lacks {kind}");
    }
}
