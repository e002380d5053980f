//! What models learn from: text, tokens and their indexes, images, documents.

use flate2::Compression;
use flate2::write::GzEncoder;
use pipewright::data::{
    Corpus, DataSource, Documents, Form, Images, LabelledImages, LossOn, Packing, Recipe, Sequences,
    Template, TokenWriter, Width, Windows,
};
use pipewright::id::MicroBatch;

use super::*;

/// The first micro-batches of this data.
fn take(source: &impl DataSource) -> pipewright::Result<()> {
    source.fingerprint()?;
    (0..3).try_for_each(|step| source.micro_batch(step, MicroBatch(0)).map(|_| ()))
}

fn windows(corpus: Corpus) -> pipewright::Result<()> {
    let count = corpus.count();
    corpus.check_vocabulary(1 << 16)?;
    take(&Windows::drawn(Arc::new(corpus), 0..count, 2, 8, 1)?)
}

#[test]
fn texts() {
    let _alone = alone();
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("text.txt");
    Target {
        name: "texts",
        seeds: vec!["Hear me speak, naïve café.\n".repeat(20).into_bytes()],
        words: "\u{feff}, \r\n, \0, 😀",
        inputs: 1500,
        bytes: 16 * MIB,
        blocks: 100_000,
    }
    .fuzz(|input| {
        write(&path, input);
        told(Corpus::text(std::slice::from_ref(&path)).and_then(windows))
    });
}

/// A pair of tokens and their index, of three documents.
fn token_files(folder: &Path) -> (PathBuf, PathBuf) {
    let tokens = folder.join("tokens.bin");
    let mut writer = TokenWriter::create(&tokens, Width::U16).expect("made");
    for length in [5, 1, 40] {
        writer.add(&(0..length).collect::<Vec<u32>>()).expect("written");
        writer.end_document();
    }
    writer.finish(true).expect("written");
    // What is beside it would refuse every change.
    std::fs::rename(description(&tokens), description(&tokens).with_extension("whole")).expect("moved");
    let index = tokens.with_extension("idx");
    (tokens, index)
}

/// Beside a token file: what describes it.
fn description(tokens: &Path) -> PathBuf {
    tokens.with_extension("bin.json")
}

#[test]
fn token_descriptions() {
    let _alone = alone();
    tokens("token_descriptions", |path| {
        std::fs::rename(description(path).with_extension("whole"), description(path)).expect("moved");
        description(path)
    });
}

fn tokens(name: &'static str, which: impl Fn(&Path) -> PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let (path, _) = token_files(folder.path());
    let changed = which(&path);
    Target {
        name,
        seeds: vec![contents(&changed)],
        words: "MMIDIDX, \u{93}NUMPY, u32, vocabulary",
        inputs: 2000,
        bytes: 16 * MIB,
        blocks: 100_000,
    }
    .fuzz(|input| {
        write(&changed, input);
        told(Corpus::tokens(std::slice::from_ref(&path), Width::U16).and_then(windows))
    });
}

#[test]
fn token_bins() {
    let _alone = alone();
    tokens("token_bins", Path::to_owned);
}

#[test]
fn token_indexes() {
    let _alone = alone();
    tokens("token_indexes", |path| path.with_extension("idx"));
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(bytes).and_then(|()| packer.finish()).expect("memory takes it")
}

/// Images, or their labels, are changed.
fn images(name: &'static str, changes_labels: bool) {
    let folder = TempDir::new().expect("a folder");
    let paths = ["images", "labels"].map(|name| folder.path().join(name));
    let pixels = [&[0, 0, 8, 3, 0, 0, 0, 10, 0, 0, 0, 5, 0, 0, 0, 5], &[7; 250][..]].concat();
    let labels = [&[0, 0, 8, 1, 0, 0, 0, 10], &[3; 10][..]].concat();
    write(&paths[0], &pixels);
    write(&paths[1], &labels);
    let (changed, whole) = if changes_labels { (&paths[1], labels) } else { (&paths[0], pixels) };
    // A packed file that grows a thousandfold.
    let bomb = [&[0, 0, 8, 3, 0, 0, 0, 10, 0, 0, 1, 0, 0, 0, 1, 0], &vec![0; 16 * MIB][..]].concat();
    Target {
        name,
        seeds: vec![packed(&whole), whole, packed(&bomb)],
        words: "",
        inputs: 500,
        bytes: 64 * MIB,
        blocks: 100_000,
    }
    .fuzz(|input| {
        write(changed, input);
        let all = told(LabelledImages::read(&paths[0], Some(&paths[1])))?;
        told(all.check_classes(10))?;
        let count = all.count();
        told(Images::shuffled(Arc::new(all), 0..count, 2, 2, 1).and_then(|images| take(&images)))
    });
}

#[test]
fn idx_images() {
    let _alone = alone();
    images("idx_images", false);
}

#[test]
fn idx_labels() {
    let _alone = alone();
    images("idx_labels", true);
}

#[test]
fn cifar_records() {
    let _alone = alone();
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("data_batch_1.bin");
    let record: Vec<u8> = (0..3073).map(|at| (at % 10) as u8).collect();
    Target {
        name: "cifar_records",
        seeds: vec![record.clone(), record.repeat(3)],
        words: "",
        inputs: 300,
        bytes: 64 * MIB,
        blocks: 100_000,
    }
    .fuzz(|input| {
        write(&path, input);
        let all = told(LabelledImages::cifar10(folder.path()))?;
        told(all.check_classes(10))?;
        let count = all.count();
        let images = Images::shuffled(Arc::new(all), 0..count, 2, 2, 1);
        told(images.and_then(|images| take(&images.with_crops_and_flips(1))))
    });
}

/// Documents through the tokenizer to sequences.
fn documents(folder: &Path, path: &Path, tokenizer: &Tokenizer, recipe: &Recipe) -> Result<(), String> {
    let cache = folder.join("cache");
    let paths = [path.to_owned()];
    let documents = Documents::encode(&paths, tokenizer, recipe, &cache, &mut |_| {});
    let read = documents.and_then(|documents| {
        let count = documents.count();
        take(&Sequences::shuffled(Arc::new(documents), 0..count, Packing::Joined, (2, 8), 2, 1)?)
    });
    let _ = std::fs::remove_dir_all(&cache);
    told(read)
}

#[test]
fn json_lines() {
    let _alone = alone();
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("data.jsonl");
    let tokenizer = Tokenizer::read(&here("tests/golden/tokenizer")).expect("it is whole");
    let text = Recipe::new(Form::Jsonl);
    let chat = |template| Recipe {
        field: "messages".to_owned(),
        loss_on: LossOn::Answers,
        template,
        ..Recipe::new(Form::Jsonl)
    };
    let recipes = [text, chat(None), chat(Some(Template::ChatMl))];
    let plain = "{\"text\": \"Hear me speak.\", \"n\": 1}\n\n{\"text\": \"naïve 😀\"}\n";
    let answer = r#"{"role": "assistant", "content": " Yes. "}"#;
    let asked = format!(r#"{{"messages": [{{"role": "user", "content": "Hear me?"}}, {answer}]}}"#);
    let both = "{\"text\": \"a\", \"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\n".repeat(3);
    Target {
        name: "json_lines",
        seeds: vec![
            plain.into(),
            asked.repeat(2).into_bytes(),
            asked.clone().into_bytes(),
            both.into_bytes(),
        ],
        words: "text, messages, role, content, assistant, system, <|im_end|>, \\ud800, conversations",
        inputs: 250,
        bytes: 256 * MIB,
        blocks: 8_000_000,
    }
    .fuzz(|input| {
        write(&path, input);
        let read = recipes.each_ref().map(|recipe| documents(folder.path(), &path, &tokenizer, recipe));
        let [text, chat, _] = read;
        text.and(chat)
    });
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_tables() {
    let _alone = alone();
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("data.parquet");
    let tokenizer = Tokenizer::read(&here("tests/golden/tokenizer")).expect("it is whole");
    let names = ["brotli", "gzip", "lz4", "none", "snappy", "zstd"];
    Target {
        name: "parquet_tables",
        seeds: names.map(|name| contents(&here(&format!("tests/golden/parquet/{name}.parquet")))).into(),
        words: "text, PAR1",
        inputs: 1000,
        bytes: 512 * MIB,
        blocks: 4_000_000,
    }
    .fuzz(|input| {
        write(&path, input);
        documents(folder.path(), &path, &tokenizer, &Recipe::new(Form::Parquet))
    });
}
