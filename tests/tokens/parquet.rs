use super::encoding::tokens;
use super::*;

fn file(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/golden/parquet").join(name)
}

fn column(field: &str) -> Recipe {
    Recipe { field: field.to_owned(), ..Recipe::new(Form::Parquet) }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_program_without_parquet_says_how_to_build_one_with_it() {
    let said = message(tokens(&[file("snappy.parquet")], &column("text")));
    has(&said, &["built without the cargo feature `parquet`"]);
    has(&said, &["cargo build --release --features parquet"]);
}

#[cfg(feature = "parquet")]
#[test]
fn a_row_is_a_document_under_every_compression() {
    let text = |number| format!("Line {number}: hear me speak, naïve 😀.");
    let expected: Vec<u32> =
        (0..12).flat_map(|number| [small().encode(&text(number)).unwrap(), vec![0]].concat()).collect();
    for codec in ["snappy", "zstd", "gzip", "lz4", "brotli", "none"] {
        let path = file(&format!("{codec}.parquet"));
        assert_eq!(tokens(&[path], &column("text")).unwrap(), expected, "{codec}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn a_column_of_messages_is_read_as_the_lines_of_json_are() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("chats.jsonl");
    let line = |number| {
        let (question, answer) = (format!("And {number}?"), format!("{number} it is."));
        serde_json::json!({ "messages": [
            { "role": "user", "content": question }, { "role": "assistant", "content": answer },
        ]})
        .to_string()
    };
    fs::write(&path, (0..12).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    let lines = Recipe { form: Form::Jsonl, ..column("messages") };
    let expected = tokens(&[path], &lines).unwrap();
    assert_eq!(tokens(&[file("snappy.parquet")], &column("messages")).unwrap(), expected);
}

#[cfg(feature = "parquet")]
#[test]
fn a_row_of_a_prompt_and_a_completion_is_read_as_the_lines_of_json_are() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("prompts.jsonl");
    let line = |number| {
        let prompt = format!("Line {number}: hear me speak, naïve 😀.");
        json!({"prompt": prompt, "completion": format!(" {number} it is.")}).to_string()
    };
    fs::write(&path, (0..12).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    for loss_on in [LossOn::All, LossOn::Answers] {
        let table = Recipe { loss_on, ..column("text") };
        let lines = Recipe { form: Form::Jsonl, ..table.clone() };
        let expected = tokens(std::slice::from_ref(&path), &lines).unwrap();
        assert_eq!(tokens(&[file("prompts.parquet")], &table).unwrap(), expected);
    }
    let said = message(tokens(&[file("prompts.parquet")], &column("prompt")));
    has(&said, &["has \"completion\", which would be left out"]);
}

/// As of a line of JSON, a column beside a chat that changes what is learnt is not left out.
#[cfg(feature = "parquet")]
#[test]
fn a_column_that_changes_what_is_learnt_is_refused_by_row() {
    let said = message(tokens(&[file("tools.parquet")], &column("messages")));
    has(&said, &["tools.parquet` row 1 has \"tools\", which would be left out"]);
}

#[cfg(feature = "parquet")]
#[test]
fn a_table_that_cannot_be_used_is_refused_with_its_column_or_row() {
    let refused = |field: &str| message(tokens(&[file("snappy.parquet")], &column(field)));
    has(
        &refused("content"),
        &["has no column \"content\" (data.field), only \"id\", \"text\", \"messages\""],
    );
    has(&refused("holes"), &["snappy.parquet` row 3 has null in \"holes\""]);
    assert!(refused("raw").contains("has bytes in the column \"raw\" that are not marked as text"));
    assert!(refused("id").contains("row 1 has a number in \"id\""));
}

#[cfg(feature = "parquet")]
#[test]
fn a_damaged_file_is_refused_and_nothing_panics_out_of_it() {
    let folder = TempDir::new().unwrap();
    let whole = fs::read(file("snappy.parquet")).unwrap();
    let path = folder.path().join("damaged.parquet");
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        message(tokens(std::slice::from_ref(&path), &column("text")))
    };
    assert!(refused(b"PAR1 no, it is text").contains("damaged.parquet` is no Parquet that can be read"));
    assert!(refused(&whole[..whole.len() / 2]).contains("damaged.parquet` is no Parquet that can be read"));
    let mut zeros = whole.clone();
    zeros[4..400].fill(0);
    assert!(refused(&zeros).contains("damaged.parquet` is damaged at row 1"));
}
