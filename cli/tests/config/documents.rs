use super::*;

#[test]
fn documents_without_what_they_need_are_refused() {
    all_refused(&[
        (
            "[data]\nkind = 'jsonl'",
            &["data.tokenizer: documents become tokens: name the tokenizer.json of the model"],
        ),
        #[cfg(not(feature = "parquet"))]
        (
            "[data]\nkind = 'parquet'\ntokenizer = 'x'",
            &[
                "my.toml:2: data.kind: this program was built without the cargo feature `parquet`",
                "--features parquet",
            ],
        ),
        (
            "[data]\nkind = 'jsonl'\ntokenizer = 'x'\ntemplate = 'alpaca'",
            &["data.template: expected `chatml` or `llama3`"],
        ),
    ]);
}
