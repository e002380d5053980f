use super::kinds::{folder, kinds};
use super::*;

/// The tokens of files, as `tokenize` writes them.
pub(super) fn tokens(paths: &[PathBuf], recipe: &Recipe) -> pipewright::Result<Vec<u32>> {
    tokens_by(&small(), paths, recipe)
}

/// The same, by another tokenizer.
pub(super) fn tokens_by(
    tokenizer: &Tokenizer,
    paths: &[PathBuf],
    recipe: &Recipe,
) -> pipewright::Result<Vec<u32>> {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out.bin");
    let mut writer = TokenWriter::create(&out, Width::U32)?;
    let mut told = 0;
    recipe.encode(paths, tokenizer, &mut writer, &mut |encoded| {
        assert!(encoded.bytes >= told && encoded.bytes <= encoded.all);
        told = encoded.bytes;
    })?;
    writer.finish(false)?;
    let bytes = fs::read(out).unwrap();
    Ok(bytes.as_chunks().0.iter().map(|token| u32::from_le_bytes(*token)).collect())
}

#[test]
fn each_file_of_text_is_a_document_with_a_token_at_its_end() {
    let folder = TempDir::new().unwrap();
    let texts = ["Hear me speak.\n", "naïve café 😀"];
    for (name, text) in ["a.txt", "b.txt"].iter().zip(texts) {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let expected: Vec<u32> =
        texts.iter().flat_map(|text| [small().encode(text).unwrap(), vec![0]].concat()).collect();
    let recipe = Recipe::new(Form::Text);
    assert_eq!(tokens(&[folder.path().to_owned()], &recipe).unwrap(), expected);
    let ended = Recipe { end_of_text: Some("<|im_end|>".to_owned()), ..recipe };
    assert_eq!(tokens(&[folder.path().to_owned()], &ended).unwrap().last(), Some(&2));
}

#[test]
fn the_built_in_text_has_the_tokens_of_the_same_text_in_a_file() {
    let folder = TempDir::new().unwrap();
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/data/builtin/shakespeare.txt");
    for end_of_text in [None, Some("<|im_end|>")] {
        let recipe = Recipe { end_of_text: end_of_text.map(str::to_owned), ..Recipe::new(Form::Text) };
        let tell = &mut |_| ();
        let file =
            Documents::encode(std::slice::from_ref(&text), &small(), &recipe, folder.path(), tell).unwrap();
        let built_in = Corpus::built_in_encoded(&small(), end_of_text).unwrap();
        assert_eq!(built_in.count(), file.corpus().count());
        assert_eq!(built_in.checksum().unwrap(), file.corpus().checksum().unwrap());
        assert_eq!(built_in.name(), "`built-in text`");
    }
    has(&message(Corpus::built_in_encoded(&small(), Some("<end>"))), &["has no token `<end>`"]);
}

/// A text of two pieces, with many places where pieces are hard to cut: several line breaks,
/// spaces, characters of several bytes, special tokens.
fn long() -> String {
    let block = "Speak, speak.\n\n  You are all résolved\nrather to die 日本\n語 than to famish?\r\n\u{3000}x\n\
                 \u{a0}y and the\nthe end</s>1234567\n ending\n";
    block.repeat(9_000)
}

#[test]
fn a_long_text_has_the_tokens_that_it_has_as_a_whole_whatever_encodes_it() {
    let text = long();
    assert!(text.len() > 1 << 20);
    for (name, json) in kinds() {
        let folder = folder(&json, &[]);
        let (tokenizer, path) = (Tokenizer::read(folder.path()).unwrap(), folder.path().join("long.txt"));
        fs::write(&path, &text).unwrap();
        let expected = [tokenizer.encode(&text).unwrap(), vec![0]].concat();
        let found = tokens_by(&tokenizer, &[path], &Recipe::new(Form::Text)).unwrap();
        assert!(found == expected, "{name}: {} and {} tokens", found.len(), expected.len());
    }
}

#[test]
fn text_that_is_not_utf8_is_refused_with_the_byte() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("latin.txt");
    for (text, byte) in [(&b"caf\xe9 au lait"[..], 3), (b"cut \xe2\x82", 4)] {
        fs::write(&path, text).unwrap();
        let said = message(tokens(std::slice::from_ref(&path), &Recipe::new(Form::Text)));
        has(&said, &[&format!("latin.txt` is not UTF-8 at byte {byte}")]);
    }
}

#[test]
fn tokens_are_kept_and_made_again_when_what_they_depend_on_changes() {
    let folder = TempDir::new().unwrap();
    let (path, cache) = (folder.path().join("a.txt"), folder.path().join("cache"));
    let tokenizer = small();
    let encode = |recipe: &Recipe, work: &mut bool| -> Corpus {
        let paths = std::slice::from_ref(&path);
        Documents::encode(paths, &tokenizer, recipe, &cache, &mut |_| *work = true).unwrap().into_corpus()
    };
    let plain = Recipe::new(Form::Text);
    let (mut first, mut again, mut other, mut changed) = (false, false, false, false);
    fs::write(&path, "Hear me speak.").unwrap();
    let count = encode(&plain, &mut first).count();
    assert_eq!(encode(&plain, &mut again).count(), count);
    let ended = Recipe { end_of_text: Some("<|im_end|>".to_owned()), ..plain.clone() };
    encode(&ended, &mut other);
    fs::write(&path, "Hear me speak!").unwrap();
    let corpus = encode(&plain, &mut changed);
    assert_eq!((first, again, other, changed), (true, false, true, true));
    has(&corpus.name(), &["a.txt"]);
    let left = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
    assert!(
        left.into_iter()
            .all(|path| { path.extension().is_some_and(|is| is == "bin" || is == "idx" || is == "json") })
    );
}

#[test]
fn processes_that_encode_the_same_at_once_make_it_once() {
    let folder = TempDir::new().unwrap();
    let (path, cache) = (folder.path().join("a.txt"), folder.path().join("cache"));
    fs::write(&path, "Hear me speak.\n".repeat(20_000)).unwrap();
    let (tokenizer, recipe) = (small(), Recipe::new(Form::Text));
    let made = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut work = 0;
                let paths = std::slice::from_ref(&path);
                let tell = &mut |_| work = 1;
                Documents::encode(paths, &tokenizer, &recipe, &cache, tell).unwrap();
                made.fetch_add(work, std::sync::atomic::Ordering::Relaxed);
            });
        }
    });
    assert_eq!(made.into_inner(), 1);
}
