use super::kinds::{decoders, folder, made, of_bytes, pairs};
use super::*;

/// Numbers that look random.
fn random(seed: u32) -> impl FnMut(u32) -> u32 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    }
}

fn streamed(tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<String> {
    let mut stream = TextStream::new(tokenizer);
    let mut shown: Vec<String> = tokens.iter().map(|&token| stream.push(token).unwrap()).collect();
    shown.push(stream.finish().unwrap());
    shown
}

#[test]
fn a_stream_shows_what_all_tokens_are_together_whatever_decodes_them() {
    for (name, json) in decoders() {
        let folder = folder(&json, &[]);
        let tokenizer = Tokenizer::read(folder.path()).unwrap();
        // Some tokens are not in the vocabulary.
        let count = tokenizer.vocabulary() as u32 + 3;
        for seed in 0..200 {
            let mut random = random(seed);
            let length = random(24);
            let few = [count, 40][(seed % 2) as usize];
            let from = random(count - few + 1);
            let tokens: Vec<u32> = (0..length).map(|_| from + random(few)).collect();
            let shown = streamed(&tokenizer, &tokens).concat();
            assert_eq!(shown, tokenizer.decode(&tokens).unwrap(), "{name}, seed {seed}: {tokens:?}");
        }
    }
}

#[test]
fn a_decoder_that_takes_more_than_there_is_refuses_the_tokens() {
    let (_, json) = decoders().into_iter().find(|(name, _)| *name == "stripped behind").unwrap();
    let folder = folder(&json, &[]);
    let tokenizer = Tokenizer::read(folder.path()).unwrap();
    let tokens = tokenizer.encode("a").unwrap();
    let said = tokenizer.decode(&tokens).unwrap_err().to_string();
    has(&said, &["tokenizer.json", "cannot decode tokens"]);
    let mut stream = TextStream::new(&tokenizer);
    assert_eq!(stream.push(tokens[0]).unwrap(), "");
    assert_eq!(stream.finish().unwrap_err().to_string(), said);
}

#[test]
fn bytes_of_characters_wait_until_their_run_ends() {
    let folder = folder(&made(pairs(), serde_json::json!({"decoder": of_bytes()})), &[]);
    let tokenizer = Tokenizer::read(folder.path()).unwrap();
    // The tokens of bytes begin with 2. These are two characters of three bytes each, a letter, and a byte
    // alone.
    let [a, alone] = [tokenizer.encode("a").unwrap()[0], 2 + 0xe6];
    let bytes: Vec<u32> = "日本".bytes().map(|byte| 2 + u32::from(byte)).collect();
    let tokens = [&bytes[..], &[a, alone]].concat();
    let expected = ["", "", "", "", "", "", "日本a", "", "\u{fffd}"];
    assert_eq!(streamed(&tokenizer, &tokens), expected);
    // A byte that fits nowhere makes the whole run none, as in transformers.
    let broken = [&bytes[..], &[alone, a]].concat();
    assert_eq!(streamed(&tokenizer, &broken).concat(), "\u{fffd}".repeat(7) + "a");
}
