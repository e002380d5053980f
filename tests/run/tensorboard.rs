//! What TensorBoard reads, by a reader of our own.

use std::collections::BTreeMap;

use super::*;

/// The values of each name by step, as TensorBoard takes them: where a session starts, it forgets what
/// earlier files say of this step and later ones.
type Scalars = BTreeMap<String, BTreeMap<u64, f32>>;

/// The fields of a message: their numbers, and their bytes (of numbers, 8 of them).
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => varint(&mut bytes).to_le_bytes().to_vec(),
            kind => {
                let length = match kind {
                    1 => 8,
                    5 => 4,
                    2 => varint(&mut bytes) as usize,
                    other => panic!("wire type {other}"),
                };
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                value.to_vec()
            }
        };
        fields.push((key >> 3, value));
    }
    fields
}

/// CRC-32C, bit by bit, masked.
fn masked(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}

pub(super) fn read(folder: &Path) -> Scalars {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut scalars = Scalars::new();
    for file in files {
        has(&file.to_string_lossy(), &["tfevents"]);
        let bytes = fs::read(file).unwrap();
        let (mut rest, mut events) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            let sum = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let event = &rest[12..12 + length];
            assert_eq!((sum(8), sum(12 + length)), (masked(&rest[..8]), masked(event)));
            events.push(fields(event));
            rest = &rest[16 + length..];
        }
        assert_eq!(events[0].last().unwrap(), &(3, b"brain.Event:2".to_vec()));
        for event in &events[1..] {
            let number = |(_, bytes): &(u64, Vec<u8>)| u64::from_le_bytes(bytes[..].try_into().unwrap());
            let step = event.iter().find(|(field, _)| *field == 2).map_or(0, number);
            for (field, value) in event {
                match field {
                    1 | 2 => {}
                    5 => add(&mut scalars, step, value),
                    7 => scalars.values_mut().for_each(|steps| steps.retain(|at, _| *at < step)),
                    other => panic!("field {other}"),
                }
            }
        }
    }
    scalars
}

fn add(scalars: &mut Scalars, step: u64, summary: &[u8]) {
    for (_, scalar) in fields(summary) {
        let [(1, tag), (2, value)] = &fields(&scalar)[..] else { panic!("a tag and a value") };
        let (tag, value) = (String::from_utf8(tag.clone()).unwrap(), value[..].try_into().unwrap());
        let before = scalars.entry(tag).or_default().insert(step, f32::from_le_bytes(value));
        assert_eq!(before, None, "step {step} is there once");
    }
}

#[test]
fn tensorboard_reads_the_numbers_of_each_step_once_also_after_a_resume() {
    let place = Place::new();
    let run = || place.run().save_every(4).validate(validation(2.0).every(3)).tensorboard(true);
    run().steps(4).train(&mut pipeline()).unwrap();
    run().steps(6).resume(Resume::Always).train(&mut pipeline()).unwrap();
    // As if it had been killed after the checkpoint of 4 steps.
    fs::remove_dir_all(place.path().join("checkpoints/step-00000006")).unwrap();
    run().steps(8).resume(Resume::Always).train(&mut pipeline()).unwrap();
    let scalars = read(&place.path().join("tensorboard"));
    let lines: Vec<serde_json::Value> =
        place.read("metrics.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 8);
    let of = |key: &str| -> BTreeMap<u64, f32> {
        let numbers =
            lines.iter().filter_map(|line| Some((line["step"].as_u64()?, line[key].as_f64()? as f32)));
        numbers.collect()
    };
    for (tag, key) in [
        ("loss/training", "loss"),
        ("loss/validation", "validation_loss"),
        ("learning_rate", "lr"),
        ("gradient_norm", "grad_norm"),
        ("targets_per_second", "tokens_per_second"),
        ("bubble", "bubble"),
    ] {
        assert_eq!(scalars[tag], of(key), "{tag}");
    }
    assert_eq!(scalars["loss/validation"].len(), 4, "after 3, 4, 6 and 8 steps");
    let ranks: Vec<&String> = scalars.keys().filter(|tag| tag.starts_with("memory")).collect();
    assert_eq!(ranks.len(), lines[0]["peak_bytes"].as_array().unwrap().len());
    assert_eq!(scalars[ranks[0]].len(), 8);
}

#[test]
fn without_being_asked_nothing_is_written_for_tensorboard() {
    let place = Place::new();
    place.train(2);
    assert!(!place.path().join("tensorboard").exists());
}

#[test]
fn a_folder_that_cannot_be_made_is_a_warning_and_the_run_goes_on() {
    let place = Place::new();
    fs::create_dir_all(place.path()).unwrap();
    place.train(1);
    fs::write(place.path().join("tensorboard"), "in the way").unwrap();
    let run = place.run().steps(3).resume(Resume::Always).tensorboard(true);
    let outcome = run.train(&mut pipeline()).unwrap();
    assert_eq!(outcome.steps, 3);
    let [warning] = &outcome.warnings[..] else { panic!("{:?}", outcome.warnings) };
    has(&warning, &["write the numbers of a step for TensorBoard"]);
}
