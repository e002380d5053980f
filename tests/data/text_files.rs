use super::*;

#[test]
fn a_file_is_its_bytes() {
    assert_eq!(everything(&text("naïve\n".as_bytes())), [110, 97, 195, 175, 118, 101, 10]);
}

#[test]
fn a_folder_is_read_in_sorted_order_without_hidden_binary_target_and_runs() {
    let folder = folder(&[
        ("b.txt", b"B"),
        ("a/z.rs", b"Z"),
        ("a/c.md", b"C"),
        (".hidden", b"H"),
        (".git/config", b"G"),
        ("picture.png", b"P\0P"),
        ("target/debug/x", b"T"),
        ("a/runs/y", b"R"),
        ("empty", b""),
    ]);
    let corpus = Corpus::text(&[folder.path().to_owned()]).unwrap();
    assert_eq!(as_text(&everything(&Arc::new(corpus))), "CZB");
}

#[test]
fn several_paths_follow_each_other_and_a_named_file_is_taken_whatever_its_name() {
    let folder = folder(&[("two", b"2"), (".one", b"1"), ("target/three", b"3")]);
    let paths = [".one", "two", "target"].map(|name| folder.path().join(name));
    assert_eq!(as_text(&everything(&Arc::new(Corpus::text(&paths).unwrap()))), "123");
}

#[test]
fn a_missing_path_says_where_it_was_looked_for() {
    let said = message(Corpus::text(&[PathBuf::from("no/such.txt")]));
    let absolute = std::env::current_dir().unwrap().join("no/such.txt");
    assert!(said.starts_with("cannot read `no/such.txt`: "), "{said}");
    has(&said, &[&format!("`{}`", absolute.display())]);
}

#[test]
fn an_empty_file_and_a_folder_without_text_are_named() {
    let folder = folder(&[("empty.txt", b""), ("sub/picture", b"\0")]);
    let file = folder.path().join("empty.txt");
    assert_eq!(message(Corpus::text(std::slice::from_ref(&file))), format!("`{}` is empty", file.display()));
    let said = message(Corpus::text(&[folder.path().to_owned()]));
    assert!(said.starts_with(&format!("the folder `{}` holds no text", folder.path().display())), "{said}");
}

#[test]
fn a_byte_outside_the_vocabulary_is_named() {
    let corpus = text(b"abc\xc3");
    corpus.check_vocabulary(196).unwrap();
    let said = message(corpus.check_vocabulary(128));
    has(&said, &["text.txt`: token 195 at position 3 is outside"]);
    has(&said, &["vocabulary of 128 (0..=127)"]);
}

#[cfg(unix)]
#[test]
fn a_device_and_a_pipe_are_refused_without_being_read() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for (path, kind) in [(PathBuf::from("/dev/zero"), "device"), (pipe, "pipe")] {
        let text = message(Corpus::text(std::slice::from_ref(&path)));
        let tokens = message(Corpus::tokens(std::slice::from_ref(&path), Width::U16));
        let images = message(LabelledImages::read(&path, Some(&path)));
        for said in [text, tokens, images] {
            let expected = format!("`{}` is a {kind}, not a regular file", path.display());
            assert!(said.starts_with(&expected), "{said}");
        }
    }
}

#[test]
fn text_beyond_what_memory_holds_is_read_from_its_file() {
    let folder = folder(&[("b", b"the end")]);
    let long = folder.path().join("a");
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&long).unwrap();
    // A sparse file of 300 MiB: the disk stores none of its zeros. It begins as text does.
    fs::write(&long, "x".repeat(8192)).unwrap();
    file.set_len(300 << 20).unwrap();
    let corpus = Arc::new(Corpus::text(&[long, folder.path().join("b")]).unwrap());
    let (start, count) = ((300 << 20) - 3, corpus.count());
    let windows = Windows::even(Arc::clone(&corpus), start..count, 1, 9, 1).unwrap();
    let (input, _) = windows.micro_batch(0, MicroBatch(0)).unwrap();
    assert_eq!(as_text(input.ids()), "\0\0\0the en");
}

#[test]
#[cfg(target_os = "linux")]
fn text_in_more_files_than_a_process_may_open_is_read() {
    let folder = folder(&[("last", b"the end")]);
    let long = folder.path().join("long.txt");
    fs::write(&long, "x".repeat(8192)).unwrap();
    fs::OpenOptions::new().write(true).open(&long).unwrap().set_len(256 << 20).unwrap();
    let many = folder.path().join("many");
    fs::create_dir(&many).unwrap();
    (0..600).for_each(|index| fs::write(many.join(format!("{index:03}")), "word ").unwrap());
    let corpus = Corpus::text(&[long, many.clone(), folder.path().join("last")]).unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let of_these = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    assert!(of_these.filter(|file| file.starts_with(&many)).count() < 300);
    let (corpus, end) = (Arc::new(corpus), (256 << 20) + 600 * 5 + 7);
    assert_eq!(corpus.count(), end);
    let windows = Windows::even(Arc::clone(&corpus), end - 18..end, 1, 17, 1).unwrap();
    let (input, _) = windows.micro_batch(0, MicroBatch(0)).unwrap();
    assert_eq!(as_text(input.ids()), " word word the en");
}
