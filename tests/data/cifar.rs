//! CIFAR-10: records, normal colors, moves and flips.

use super::*;

const SIDE: usize = 32;
const PIXELS: usize = SIDE * SIDE;

/// A record in which every pixel of a color has the same byte.
fn plain(label: u8, colors: [u8; 3]) -> Vec<u8> {
    let planes = colors.into_iter().flat_map(|color| [color; PIXELS]);
    std::iter::once(label).chain(planes).collect()
}

/// A record whose first color says the line of each pixel, and whose second says its column.
fn places(label: u8) -> Vec<u8> {
    let lines = (0..PIXELS).map(|place| (place / SIDE) as u8 + 100);
    let columns = (0..PIXELS).map(|place| (place % SIDE) as u8 + 100);
    let record = std::iter::once(label).chain(lines).chain(columns);
    record.chain([0; PIXELS]).collect()
}

/// A color of a pixel as the byte that it was.
fn byte(number: f32, color: usize) -> f32 {
    let (mean, deviation) = ([0.4914, 0.4822, 0.4465][color], [0.2470, 0.2435, 0.2616][color]);
    ((number * deviation + mean) * 255.0).round()
}

#[test]
fn colors_are_side_by_side_and_have_mean_0_and_deviation_1() {
    let folder = folder(&[("one.bin", &[plain(7, [10, 20, 30]), places(3)].concat())]);
    let all = LabelledImages::cifar10(&folder.path().join("one.bin")).unwrap();
    let images = Images::in_order(Arc::new(all), 0..2, 2).unwrap();
    let (input, target) = images.micro_batch(0, MicroBatch(0)).unwrap();
    assert_eq!((input.dims(), target.ids()), (&[2, 32, 32, 3][..], &[7, 3][..]));
    for (color, expected) in [10.0_f32, 20.0, 30.0].into_iter().enumerate() {
        assert_eq!(byte(input.f32()[color], color), expected);
    }
    assert!((input.f32()[0] - (10.0 / 255.0 - 0.4914) / 0.2470).abs() < 1e-6);
    let pixel = &input.f32()[(PIXELS + 5 * SIDE + 9) * 3..];
    assert_eq!([byte(pixel[0], 0), byte(pixel[1], 1)], [105.0, 109.0]);
}

#[test]
fn a_folder_is_read_in_the_order_of_its_names_and_the_test_is_last() {
    let files: Vec<(&str, Vec<u8>)> =
        ["test_batch.bin", "data_batch_2.bin", "data_batch_1.bin", "readme.html"]
            .into_iter()
            .zip([9, 2, 1, 0])
            .map(|(name, label)| (name, plain(label, [0; 3])))
            .collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    let folder = folder(&files);
    let all = LabelledImages::cifar10(folder.path()).unwrap();
    let images = Images::in_order(Arc::new(all), 0..3, 3).unwrap();
    let (_, target) = images.micro_batch(0, MicroBatch(0)).unwrap();
    assert_eq!(target.ids(), [1, 2, 9]);
}

#[test]
fn images_are_moved_by_up_to_four_pixels_and_flipped() {
    let folder = folder(&[("one.bin", &places(0).repeat(64))]);
    let all = Arc::new(LabelledImages::cifar10(&folder.path().join("one.bin")).unwrap());
    let images = Images::shuffled(all, 0..64, 8, 2, 3).unwrap().with_crops_and_flips(3);
    let (mut moves, mut flipped) = (std::collections::BTreeSet::new(), 0);
    for step in 0..12 {
        let (input, _) = images.micro_batch(step, MicroBatch(1)).unwrap();
        for image in input.f32().chunks_exact(PIXELS * 3) {
            let at = |line: usize, column: usize| {
                let pixel = &image[(line * SIDE + column) * 3..];
                [byte(pixel[0], 0) - 100.0, byte(pixel[1], 1) - 100.0]
            };
            // The middle is always of the image.
            let ([line, left], [_, right]) = (at(16, 15), at(16, 16));
            let flips = right < left;
            flipped += u32::from(flips);
            let column = if flips { left - 16.0 } else { left - 15.0 };
            let (down, across) = (line - 16.0, column);
            assert!(down.abs() <= 4.0 && across.abs() <= 4.0, "{down} {across}");
            moves.insert((down as i32, across as i32));
            // Zeros behind the border, and the image elsewhere.
            for (place, pixel) in image.chunks_exact(3).enumerate() {
                let from = (place / SIDE) as f32 + down;
                if (0.0..32.0).contains(&from) {
                    assert!(pixel == [0.0; 3] || byte(pixel[0], 0) == from + 100.0);
                } else {
                    assert_eq!(pixel, [0.0; 3]);
                }
            }
        }
    }
    assert!((30..66).contains(&flipped), "{flipped} of 96");
    assert!(moves.len() > 40, "{} of 81 moves", moves.len());
}

#[test]
fn moves_depend_on_the_image_and_the_epoch_and_not_on_how_a_step_is_divided() {
    let folder = folder(&[("one.bin", &places(0).repeat(16))]);
    let all = Arc::new(LabelledImages::cifar10(&folder.path().join("one.bin")).unwrap());
    let of = |rows, micro_batches, seed| {
        let images = Images::shuffled(Arc::clone(&all), 0..16, rows, micro_batches, 3).unwrap();
        images.with_crops_and_flips(seed)
    };
    let numbers = |images: &Images, step, micro_batches| -> Vec<f32> {
        (0..micro_batches)
            .flat_map(|index| images.micro_batch(step, MicroBatch(index)).unwrap().0.f32().to_vec())
            .collect()
    };
    let whole = numbers(&of(8, 1, 1), 1, 1);
    assert_eq!(numbers(&of(2, 4, 1), 1, 4), whole);
    assert_ne!(numbers(&of(8, 1, 2), 1, 1), whole, "another seed");
    let fingerprints = [1, 2].map(|seed| of(8, 1, seed).fingerprint().unwrap().batches);
    assert_ne!(fingerprints[0], fingerprints[1]);
}

#[test]
fn other_files_are_refused() {
    let unlabelled = folder(&[("short.bin", &plain(0, [0; 3])[1..]), ("empty.bin", &[])]);
    let said = |name: &str| message(LabelledImages::cifar10(&unlabelled.path().join(name)));
    assert!(
        said("short.bin").contains("has 3072 bytes, which are no whole records of 3073"),
        "{}",
        said("short.bin")
    );
    assert!(said("empty.bin").contains("is empty"), "{}", said("empty.bin"));
    assert!(said("none.bin").contains("cannot read"), "{}", said("none.bin"));
    assert!(said("").contains("holds neither `data_batch_1.bin` nor `test_batch.bin`"), "{}", said(""));
    let labelled = folder(&[("one.bin", &plain(10, [0; 3]))]);
    let all = LabelledImages::cifar10(&labelled.path().join("one.bin")).unwrap();
    has(&message(all.check_classes(10)), &["label 10 of image 0 is outside the model's 10 classes"]);
}
