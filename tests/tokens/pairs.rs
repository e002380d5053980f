use super::*;

/// A pair of two documents, `[7, 8, 9]` and `[10]`, as `X.bin` and `X.idx` in a folder.
fn pair(width: Width) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("X.bin");
    let mut writer = TokenWriter::create(&path, width).unwrap();
    writer.add(&[7, 8]).unwrap();
    writer.add(&[9]).unwrap();
    writer.end_document();
    writer.add(&[10]).unwrap();
    writer.end_document();
    let written = writer.finish(true).unwrap();
    assert_eq!((written.tokens, written.documents.len()), (4, 2));
    (folder, path)
}

fn index_of(sequences: &[i32], starts: &[i64], documents: &[i64], kind: u8) -> Vec<u8> {
    let mut bytes = b"MMIDIDX\0\0".to_vec();
    bytes.extend(1_u64.to_le_bytes());
    bytes.push(kind);
    bytes.extend((sequences.len() as u64).to_le_bytes());
    bytes.extend((documents.len() as u64).to_le_bytes());
    bytes.extend(sequences.iter().flat_map(|length| length.to_le_bytes()));
    bytes.extend(starts.iter().flat_map(|start| start.to_le_bytes()));
    bytes.extend(documents.iter().flat_map(|document| document.to_le_bytes()));
    bytes
}

#[test]
fn an_index_is_written_byte_for_byte_as_megatron_writes_it() {
    let (_folder, path) = pair(Width::U16);
    assert_eq!(fs::read(&path).unwrap(), [7, 0, 8, 0, 9, 0, 10, 0]);
    let index = fs::read(path.with_extension("idx")).unwrap();
    assert_eq!(index, index_of(&[3, 1], &[0, 6], &[0, 1, 2], 8));
    let (_folder, path) = pair(Width::U32);
    let index = fs::read(path.with_extension("idx")).unwrap();
    assert_eq!(index, index_of(&[3, 1], &[0, 12], &[0, 1, 2], 4));
}

#[test]
fn a_pair_has_the_width_of_its_index_under_any_of_its_three_names() {
    for width in [Width::U16, Width::U32] {
        let (_folder, path) = pair(width);
        for name in [path.clone(), path.with_extension("idx"), path.with_extension("")] {
            // The other width would make other tokens, or another count of them.
            let corpus = Corpus::tokens(&[name], Width::U16).unwrap();
            assert_eq!(corpus.count(), 4);
            corpus.check_vocabulary(11).unwrap();
            assert!(message(corpus.check_vocabulary(10)).contains("token 10 at position 3"));
        }
    }
}

#[test]
fn sequences_that_make_up_a_document_are_read_as_one() {
    let (_folder, path) = pair(Width::U16);
    fs::write(path.with_extension("idx"), index_of(&[1, 2, 1], &[0, 2, 6], &[0, 2, 3], 8)).unwrap();
    assert_eq!(Corpus::tokens(&[path], Width::U16).unwrap().count(), 4);
}

#[test]
fn an_index_that_does_not_fit_its_tokens_is_refused_with_the_reason() {
    let (_folder, path) = pair(Width::U16);
    let cases: [(Vec<u8>, &str); 7] = [
        (b"MMIDIDX\0\0".to_vec(), "X.idx` is no index of Megatron"),
        (vec![0; 100], "X.idx` is no index of Megatron"),
        (index_of(&[4], &[0], &[0, 1], 5), "X.idx` says that tokens have Megatron's type 5"),
        (index_of(&[4], &[0], &[0, 1], 8)[..40].to_vec(), "X.idx` is truncated: it holds 40 of 62 bytes"),
        (index_of(&[3, 1], &[0, 8], &[0, 2], 8), "X.idx` has sequences that do not follow each other"),
        (
            index_of(&[3, 2], &[0, 6], &[0, 1, 2], 8),
            "X.bin`, which holds 8 bytes where the index describes 10",
        ),
        (index_of(&[3, 1], &[0, 6], &[0, 7], 8), "X.idx` has a list of documents that does not fit"),
    ];
    for (index, expected) in cases {
        fs::write(path.with_extension("idx"), index).unwrap();
        has(&message(Corpus::tokens(std::slice::from_ref(&path), Width::U16)), &[expected]);
    }
    fs::remove_file(&path).unwrap();
    has(&message(Corpus::tokens(&[path.with_extension("idx")], Width::U16)), &["cannot read", "X.bin"]);
}

#[test]
fn a_token_file_has_its_name_only_when_it_is_complete() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("X.bin");
    let mut writer = TokenWriter::create(&path, Width::U16).unwrap();
    writer.add(&[1, 2, 3]).unwrap();
    assert!(!path.exists());
    drop(writer);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

/// A file that `tokenize` would write, of a text.
fn described(width: Width) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let (text, path) = (folder.path().join("a.txt"), folder.path().join("X.bin"));
    fs::write(&text, "Hear me speak.\n".repeat(100)).unwrap();
    let mut writer = TokenWriter::create(&path, width).unwrap();
    Recipe::new(Form::Text).encode(&[text], &small(), &mut writer, &mut |_| ()).unwrap();
    writer.finish(false).unwrap();
    (folder, path)
}

#[test]
fn a_token_file_has_the_width_that_its_description_says() {
    let expected = small().encode(&"Hear me speak.\n".repeat(100)).unwrap().len() as u64 + 1;
    for width in [Width::U16, Width::U32] {
        let (_folder, path) = described(width);
        for other in [Width::U16, Width::U32] {
            let corpus = Corpus::tokens(std::slice::from_ref(&path), other).unwrap();
            assert_eq!(corpus.count(), expected);
            corpus.check_tokenizer(&small()).unwrap();
            corpus.check_vocabulary(512).unwrap();
            let said = message(corpus.check_vocabulary(511));
            has(&said, &["X.bin` was made with a tokenizer of 512 tokens, and model.vocab is 511"]);
        }
    }
}

#[test]
fn tokens_of_another_tokenizer_are_refused() {
    let (folder, path) = described(Width::U16);
    let text = fs::read_to_string(golden("tokenizer.json")).unwrap() + " ";
    fs::write(folder.path().join("tokenizer.json"), text).unwrap();
    let other = Tokenizer::read(folder.path()).unwrap();
    let said = message(Corpus::tokens(&[path], Width::U16).unwrap().check_tokenizer(&other));
    has(&said, &["X.bin` was made with another tokenizer than `"]);
}

#[test]
fn files_of_two_tokenizers_are_not_mixed() {
    let [(_first, ours), (folder, theirs)] = [described(Width::U16), described(Width::U16)];
    let both = [ours.clone(), theirs.clone()];
    Corpus::tokens(&both, Width::U16).unwrap();
    let text = fs::read_to_string(golden("tokenizer.json")).unwrap() + " ";
    fs::write(folder.path().join("tokenizer.json"), text).unwrap();
    let other = Tokenizer::read(folder.path()).unwrap();
    let mut writer = TokenWriter::create(&theirs, Width::U16).unwrap();
    Recipe::new(Form::Text).encode(&[folder.path().join("a.txt")], &other, &mut writer, &mut |_| ()).unwrap();
    writer.finish(false).unwrap();
    let said = message(Corpus::tokens(&both, Width::U16));
    let expected = format!(
        "`{}` and `{}` were made with two tokenizers: write both with one, by `pipewright tokenize`",
        ours.display(),
        theirs.display()
    );
    has(&said, &[&expected]);
}

#[test]
fn tokens_that_are_not_as_they_are_described_are_refused() {
    let (_folder, path) = described(Width::U16);
    let description = path.with_extension("bin.json");
    let whole = fs::read(&path).unwrap();
    let said = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let corpus = Corpus::tokens(std::slice::from_ref(&path), Width::U16);
        message(corpus.and_then(|corpus| corpus.checksum()))
    };
    let mut changed = whole.clone();
    changed[100] ^= 1;
    for bytes in [&changed[..], &whole[..whole.len() - 2]] {
        has(&said(bytes), &["X.bin` is not the file that `", "X.bin.json` describes"]);
    }
    fs::write(&description, "{").unwrap();
    has(&said(&whole), &["X.bin.json` does not describe a token file"]);
    fs::remove_file(&description).unwrap();
    assert_eq!(Corpus::tokens(&[path], Width::U16).unwrap().count(), whole.len() as u64 / 2);
}
