use super::*;

#[test]
fn a_file_is_its_bytes() {
    assert_eq!(
        everything(&text("naïve\n".as_bytes())),
        [110, 97, 195, 175, 118, 101, 10]
    );
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
    assert_eq!(
        as_text(&everything(&Arc::new(Corpus::text(&paths).unwrap()))),
        "123"
    );
}

#[test]
fn a_missing_path_says_where_it_was_looked_for() {
    let said = message(Corpus::text(&[PathBuf::from("no/such.txt")]));
    let absolute = std::env::current_dir().unwrap().join("no/such.txt");
    assert!(said.starts_with("cannot read `no/such.txt`: "), "{said}");
    assert!(said.contains(&format!("`{}`", absolute.display())), "{said}");
}

#[test]
fn an_empty_file_and_a_folder_without_text_are_named() {
    let folder = folder(&[("empty.txt", b""), ("sub/picture", b"\0")]);
    let file = folder.path().join("empty.txt");
    assert_eq!(
        message(Corpus::text(std::slice::from_ref(&file))),
        format!("`{}` is empty", file.display())
    );
    let said = message(Corpus::text(&[folder.path().to_owned()]));
    assert!(
        said.starts_with(&format!("the folder `{}` holds no text", folder.path().display())),
        "{said}"
    );
}

#[test]
fn a_byte_outside_the_vocabulary_is_named() {
    let corpus = text(b"abc\xc3");
    corpus.check_vocabulary(196).unwrap();
    let said = message(corpus.check_vocabulary(128));
    assert!(
        said.contains("text.txt`: token 195 at position 3 is outside"),
        "{said}"
    );
    assert!(said.contains("vocabulary of 128 (0..=127)"), "{said}");
}
