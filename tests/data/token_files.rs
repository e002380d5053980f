use super::*;

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn both_widths_are_little_endian_and_files_follow_each_other() {
    let folder = TempDir::new().unwrap();
    let one = write(&folder, "one", &[1, 0, 2, 1]);
    let two = write(&folder, "two", &[255, 255]);
    let corpus = Corpus::tokens(&[one, two], Width::U16).unwrap();
    assert_eq!(everything(&Arc::new(corpus)), [1, 258, 65535]);
    let wide = write(&folder, "wide", &[1, 0, 0, 0, 0, 0, 1, 0]);
    let corpus = Corpus::tokens(&[wide], Width::U32).unwrap();
    assert_eq!(everything(&Arc::new(corpus)), [1, 65536]);
}

#[test]
fn a_token_outside_the_vocabulary_is_named_with_its_file_and_position() {
    let folder = TempDir::new().unwrap();
    let many: Vec<u8> = (0..200_000_u32)
        .flat_map(|index| ((index % 50) as u16).to_le_bytes())
        .collect();
    let one = write(&folder, "one.bin", &many);
    let two = write(&folder, "two.bin", &[7, 0, 8, 0, 51, 0]);
    let corpus = Corpus::tokens(&[one, two], Width::U16).unwrap();
    corpus.check_vocabulary(52).unwrap();
    let said = message(corpus.check_vocabulary(51));
    assert!(
        said.contains("two.bin`: token 51 at position 2 is outside the model's vocabulary of 51"),
        "{said}"
    );
}

#[test]
fn missing_empty_and_ragged_files_are_named() {
    let folder = TempDir::new().unwrap();
    let ragged = write(&folder, "ragged", &[1, 0, 2]);
    let said = message(Corpus::tokens(&[ragged], Width::U16));
    assert!(
        said.contains("ragged` holds 3 bytes, which is not a whole number of tokens of 2 bytes: set"),
        "{said}"
    );
    let empty = write(&folder, "empty", &[]);
    assert!(message(Corpus::tokens(&[empty], Width::U32)).ends_with("empty` is empty"));
    let said = message(Corpus::tokens(&[folder.path().join("none")], Width::U32));
    assert!(said.starts_with("cannot read `"), "{said}");
    assert!(message(Corpus::tokens(&[folder.path().to_owned()], Width::U32)).contains("is not a file"));
}

#[test]
fn a_numpy_array_is_no_token_file() {
    let folder = TempDir::new().unwrap();
    let path = write(
        &folder,
        "tokens.npy",
        b"\x93NUMPY\x01\x00v\x00{'descr': '<u2'}  \n",
    );
    let said = message(Corpus::tokens(&[path], Width::U16));
    assert!(
        said.contains("tokens.npy` is a NumPy array (.npy)") && said.contains("tofile"),
        "{said}"
    );
}
