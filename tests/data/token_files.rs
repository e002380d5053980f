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
    let many: Vec<u8> = (0..200_000_u32).flat_map(|index| ((index % 50) as u16).to_le_bytes()).collect();
    let one = write(&folder, "one.bin", &many);
    let two = write(&folder, "two.bin", &[7, 0, 8, 0, 51, 0]);
    let corpus = Corpus::tokens(&[one, two], Width::U16).unwrap();
    corpus.check_vocabulary(52).unwrap();
    let said = message(corpus.check_vocabulary(51));
    has(&said, &["two.bin`: token 51 at position 2 is outside the model's vocabulary of 51"]);
}

#[test]
fn missing_empty_and_ragged_files_are_named() {
    let folder = TempDir::new().unwrap();
    let ragged = write(&folder, "ragged", &[1, 0, 2]);
    let said = message(Corpus::tokens(&[ragged], Width::U16));
    has(&said, &["ragged` holds 3 bytes, which is not a whole number of tokens of 2 bytes: set"]);
    let empty = write(&folder, "empty", &[]);
    assert!(message(Corpus::tokens(&[empty], Width::U32)).ends_with("empty` is empty"));
    let said = message(Corpus::tokens(&[folder.path().join("none")], Width::U32));
    assert!(said.starts_with("cannot read `"), "{said}");
    assert!(message(Corpus::tokens(&[folder.path().to_owned()], Width::U32)).contains("is not a file"));
}

#[test]
fn a_numpy_array_is_no_token_file() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "tokens.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '<u2'}  \n");
    has(&message(Corpus::tokens(&[path], Width::U16)), &["tokens.npy` is a NumPy array (.npy)", "tofile"]);
}

#[test]
fn what_is_hardly_a_token_file_of_this_width_is_refused_with_the_cure() {
    let folder = TempDir::new().unwrap();
    let wide: Vec<u8> = (1..40_u32).flat_map(u32::to_le_bytes).collect();
    let safetensors = br#"{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#;
    let safetensors = [&(safetensors.len() as u64).to_le_bytes()[..], safetensors].concat();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(b"Hear me speak").unwrap();
    let cases = [
        ("wide.bin", wide, "has a 0 in every second place when it is read as u16: set data.dtype to \"u32\""),
        ("a.txt", b"Hear me speak.\n".repeat(8), "is text, and not tokens: set data.kind"),
        ("a.safetensors", safetensors, "is a file of weights (safetensors), and not tokens"),
        ("a.zip", b"PK\x03\x04 and more".to_vec(), "is a ZIP archive, and not tokens: unpack it first"),
        ("a.bin.gz", packed.finish().unwrap(), "is packed by gzip, and not tokens: unpack it first"),
    ];
    for (name, bytes, expected) in cases {
        let said = message(Corpus::tokens(&[write(&folder, name, &bytes)], Width::U16));
        has(&said, &[&format!("{name}` {expected}")]);
    }
    // numpy's whole numbers have 64 bits.
    let long: Vec<u8> = (1..40_u64).flat_map(u64::to_le_bytes).collect();
    for width in [Width::U16, Width::U32] {
        let said = message(Corpus::tokens(&[write(&folder, "long.bin", &long)], width));
        let expected = "long.bin` has numbers of 64 bits, and tokens have 16 or 32: write them as u16 or u32";
        has(&said, &[expected]);
    }
    // Numbers that only begin as gzip does, and tokens that are all 0.
    let like_gzip: Vec<u8> = [0x1f, 0x8b, 8, 0].repeat(30);
    for bytes in [like_gzip, vec![0; 200]] {
        Corpus::tokens(&[write(&folder, "fine.bin", &bytes)], Width::U16).unwrap();
    }
}

#[test]
fn tokens_and_text_that_are_written_while_they_are_read_are_found() {
    let folder = TempDir::new().unwrap();
    let tokens: Vec<u8> = (0..4000_u16).flat_map(u16::to_le_bytes).collect();
    let path = write(&folder, "tokens.bin", &tokens);
    let corpus = Arc::new(Corpus::tokens(std::slice::from_ref(&path), Width::U16).unwrap());
    let windows = Windows::drawn(Arc::clone(&corpus), 0..4000, 2, 8, 1).unwrap();
    windows.micro_batch(0, MicroBatch(0)).unwrap();
    windows.fingerprint().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    // The system's clock for files may be coarse. A file that is only touched has the same contents.
    let second = std::time::Duration::from_secs(1);
    file.set_modified(std::time::UNIX_EPOCH + second).unwrap();
    windows.micro_batch(1, MicroBatch(0)).unwrap();
    (&file).write_all(&tokens[..200]).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + 2 * second).unwrap();
    windows.micro_batch(1, MicroBatch(0)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[9; 100], 0).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let said = windows.micro_batch(1, MicroBatch(0)).unwrap_err().to_string();
    has(&said, &["tokens.bin", "it was written while it was in use"]);
    // A file that takes the name of another leaves what is open as it is.
    let corpus = Arc::new(Corpus::tokens(std::slice::from_ref(&path), Width::U16).unwrap());
    let windows = Windows::drawn(corpus, 0..4000, 2, 8, 1).unwrap();
    let before = windows.micro_batch(2, MicroBatch(0)).unwrap();
    fs::rename(write(&folder, "new.bin", &[1; 8000]), &path).unwrap();
    assert_eq!(windows.micro_batch(2, MicroBatch(0)).unwrap(), before);
}
