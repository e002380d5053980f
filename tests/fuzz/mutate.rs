//! Changes files as damage and malice do, at random from a seed.

use std::ops::Range;

use pipewright::stages::rng;

/// No input is longer, unless a seed is.
const LONGEST: usize = 1 << 20;

/// Numbers at which something often ends.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    7,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    1 << 24,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    1 << 53,
    1 << 60,
    i64::MAX as u64,
    u64::MAX,
];

/// The same for text, and other values of JSON and TOML.
const VALUES: [&str; 22] = [
    "0",
    "-1",
    "1",
    "3",
    "1e308",
    "-1e-320",
    "1e999",
    "NaN",
    "nan",
    "inf",
    "0.5",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[[1, 2], [3]]",
    "\"\\u0000\"",
];

/// Random numbers from a seed.
pub(crate) struct Random {
    key: [u32; 2],
    at: u64,
}

impl Random {
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let key = rng::key(seed, name);
        Self { key, at: 0 }
    }

    /// A number below a limit that is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.at += 1;
        let [low, high, ..] = rng::philox(self.key, [self.at as u32, (self.at >> 32) as u32, 0, 0]);
        (u64::from(high) << 32 | u64::from(low)) as usize % limit
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A place, and every other time one near the start, where files describe themselves.
    fn place(&mut self, length: usize) -> usize {
        match self.below(2) {
            0 => self.below(length.min(512)),
            _ => self.below(length),
        }
    }

    fn range(&mut self, length: usize) -> Range<usize> {
        let (start, longest) = (self.place(length), 1 << self.below(10));
        start..(start + 1 + self.below(longest)).min(length)
    }
}

/// One of the seeds, changed once, or at up to four places. Every other time it is one of the first, which
/// are whole. `words` are such as the reader knows.
pub(crate) fn mutate(random: &mut Random, seeds: &[Vec<u8>], whole: usize, words: &[&str]) -> Vec<u8> {
    let from = match random.below(2) {
        0 => &seeds[..whole],
        _ => seeds,
    };
    let mut bytes = random.one_of(from).clone();
    let longest = bytes.len().max(LONGEST);
    let is_text = std::str::from_utf8(&bytes).is_ok() && !bytes.contains(&0);
    let more = random.below(2) * random.below(4);
    for _ in 0..=more {
        if bytes.is_empty() {
            bytes.push(0);
        }
        // Most changes of bytes make a text that nothing can be read of.
        let kinds = if is_text && random.below(4) > 0 { 7..14 } else { 0..14 };
        match kinds.start + random.below(kinds.len()) {
            0..3 => change_a_byte(random, &mut bytes),
            3..5 => write_a_number(random, &mut bytes),
            5 => bytes.truncate(random.place(bytes.len())),
            6 => drop(bytes.drain(random.range(bytes.len()))),
            7..11 => write_another_value(random, &mut bytes),
            11 => write_another_word(random, &mut bytes, words),
            12 => write_another_line(random, &mut bytes),
            _ => match random.below(3) {
                0 => repeat(random, &mut bytes),
                1 => splice(random, &mut bytes, seeds),
                _ => nest(random, &mut bytes),
            },
        }
        bytes.truncate(longest);
    }
    bytes
}

fn change_a_byte(random: &mut Random, bytes: &mut [u8]) {
    let place = random.place(bytes.len());
    match random.below(2) {
        0 => bytes[place] ^= 1 << random.below(8),
        _ => bytes[place] = random.below(256) as u8,
    }
}

/// A number of 1 to 8 bytes, in either order.
fn write_a_number(random: &mut Random, bytes: &mut [u8]) {
    let number = random.one_of(&NUMBERS).wrapping_add(random.below(3) as u64).wrapping_sub(1);
    let width = 1 << random.below(4);
    let written = match random.below(2) {
        0 => number.to_le_bytes()[..width].to_vec(),
        _ => number.to_be_bytes()[8 - width..].to_vec(),
    };
    let place = random.place(bytes.len());
    bytes[place..].iter_mut().zip(written).for_each(|(byte, new)| *byte = new);
}

fn repeat(random: &mut Random, bytes: &mut Vec<u8>) {
    let range = random.range(bytes.len());
    let times = 1 << random.below(8);
    let copies = bytes[range.clone()].repeat(times);
    bytes.splice(range.end..range.end, copies);
}

fn splice(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let other = random.one_of(seeds);
    if other.is_empty() {
        return;
    }
    let (from, to) = (random.range(other.len()), random.range(bytes.len()));
    bytes.splice(to, other[from].iter().copied());
}

/// Where a run of such bytes begins at or after a random place, and where it ends.
fn run_of(random: &mut Random, bytes: &[u8], is_in: impl Fn(u8) -> bool) -> Option<Range<usize>> {
    let from = random.below(bytes.len());
    let start = from + bytes[from..].iter().position(|&byte| is_in(byte))?;
    let length = bytes[start..].iter().position(|&byte| !is_in(byte));
    Some(start..length.map_or(bytes.len(), |length| start + length))
}

/// Another value in place of a number or word, or of all up to a line's or an entry's end.
fn write_another_value(random: &mut Random, bytes: &mut Vec<u8>) {
    let range = match random.below(3) {
        0 => run_of(random, bytes, |byte| byte.is_ascii_digit()),
        1 => run_of(random, bytes, |byte| byte.is_ascii_alphanumeric() || b"\"-._".contains(&byte)),
        _ => run_of(random, bytes, |byte| !b":=,\n".contains(&byte)),
    };
    if let Some(range) = range {
        bytes.splice(range, random.one_of(&VALUES).bytes());
    }
}

fn write_another_word(random: &mut Random, bytes: &mut Vec<u8>, words: &[&str]) {
    if words.is_empty() {
        return;
    }
    let range = match random.below(2) {
        0 => run_of(random, bytes, |byte| byte.is_ascii_alphabetic() || byte == b'_'),
        _ => {
            let place = random.below(bytes.len());
            Some(place..place)
        }
    };
    if let Some(range) = range {
        bytes.splice(range, random.one_of(words).bytes());
    }
}

/// A line again at another place, or in place of another.
fn write_another_line(random: &mut Random, bytes: &mut Vec<u8>) {
    let [from, to] = [(); 2].map(|()| run_of(random, bytes, |byte| byte != b'\n'));
    if let (Some(from), Some(to)) = (from, to) {
        let mut line = bytes[from].to_vec();
        let place = match random.below(2) {
            0 => to,
            _ => {
                line.push(b'\n');
                to.start..to.start
            }
        };
        bytes.splice(place, line);
    }
}

/// Many brackets.
fn nest(random: &mut Random, bytes: &mut Vec<u8>) {
    let opening = random.one_of(&["[", "{\"a\":", "(", "[[", "{a=", "(?:"]);
    let many = opening.repeat(1 << random.below(16));
    let place = random.place(bytes.len());
    bytes.splice(place..place, many.bytes());
}
