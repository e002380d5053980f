use super::*;

fn idx(magic: u32, dims: &[u32], bytes: &[u8]) -> Vec<u8> {
    let header = std::iter::once(&magic).chain(dims).flat_map(|word| word.to_be_bytes());
    header.chain(bytes.iter().copied()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Images of one pixel each with these labels.
pub(super) fn of(pixels: &[u8], labels: &[u8]) -> TempDir {
    let images = idx(0x803, &[pixels.len() as u32, 1, 1], pixels);
    folder(&[
        ("t-images-idx3-ubyte", &images),
        ("t-labels-idx1-ubyte", &idx(0x801, &[labels.len() as u32], labels)),
    ])
}

/// `count` images of 2 x 3 pixels: image i has all pixels i and the label i.
fn pair(count: u8) -> TempDir {
    let pixels: Vec<u8> = (0..count).flat_map(|image| [image; 6]).collect();
    let labels: Vec<u8> = (0..count).collect();
    folder(&[
        ("t-images-idx3-ubyte", &idx(0x803, &[count.into(), 2, 3], &pixels)),
        ("t-labels-idx1-ubyte", &idx(0x801, &[count.into()], &labels)),
    ])
}

pub(super) fn read(folder: &Path) -> Arc<LabelledImages> {
    Arc::new(LabelledImages::read(folder, None).unwrap())
}

fn labels(source: &Images, steps: Range<u64>, micro_batches: u32) -> Vec<u32> {
    let places = steps.flat_map(|step| (0..micro_batches).map(move |index| (step, MicroBatch(index))));
    places.flat_map(|(step, index)| source.micro_batch(step, index).unwrap().1.ids().to_vec()).collect()
}

#[test]
fn pixels_are_scaled_to_one_and_stay_with_their_label() {
    let folder = pair(200);
    let images = Images::shuffled(read(folder.path()), 0..200, 4, 1, 3).unwrap();
    let (input, target) = images.micro_batch(5, MicroBatch(0)).unwrap();
    assert_eq!((input.dims(), target.dims()), (&[4, 2, 3][..], &[4][..]));
    assert_eq!((*input.shape(), *target.shape()), images.shapes());
    for (pixels, &label) in input.f32().chunks(6).zip(target.ids()) {
        assert_eq!(pixels, [label as f32 / 255.0; 6]);
    }
}

#[test]
fn validation_is_in_order_and_fills_the_last_micro_batch_with_ignored_rows() {
    let folder = pair(10);
    let images = Images::in_order(read(folder.path()), 5..10, 3).unwrap();
    assert_eq!(labels(&images, 0..1, 2), [5, 6, 7, 8, 9, IGNORED]);
    assert_eq!(labels(&images, 9..10, 3)[6..], [IGNORED; 3]);
}

#[test]
fn gzipped_files_are_told_by_their_contents_and_labels_can_be_named() {
    let images = gzip(&idx(0x803, &[2, 1, 2], &[1, 2, 3, 4]));
    let folder = folder(&[("pictures", &images), ("answers", &gzip(&idx(0x801, &[2], &[0, 1])))]);
    let (pictures, answers) = (folder.path().join("pictures"), folder.path().join("answers"));
    assert_eq!(LabelledImages::read(&pictures, Some(&answers)).unwrap().count(), 2);
    has(&message(LabelledImages::read(&pictures, None)), &["its name does not say `images`"]);
}

#[test]
fn epochs_differ_in_order() {
    let folder = pair(64);
    let images = Images::shuffled(read(folder.path()), 0..64, 16, 4, 1).unwrap();
    let (first, second) = (labels(&images, 0..1, 4), labels(&images, 1..2, 4));
    assert_ne!(first, second);
    assert_ne!(first, (0..64).collect::<Vec<_>>());
}

#[test]
fn a_range_that_is_not_a_part_of_the_images_and_no_rows_are_refused() {
    let folder = pair(10);
    #[expect(clippy::reversed_empty_ranges, reason = "what is refused")]
    for span in [0..11, 6..4] {
        let said = message(Images::in_order(read(folder.path()), span.clone(), 1));
        assert!(said.contains("is not a part of") && said.ends_with("0..10"), "{said}");
    }
    has(&message(Images::shuffled(read(folder.path()), 0..10, 0, 1, 1)), &["at least one row"]);
}

#[test]
fn a_gzip_bomb_is_refused_before_it_is_unpacked() {
    // 64 MiB of zeros compress to about 64 kB. Only the header of each file is unpacked.
    let many = 64 << 20;
    let bomb = gzip(&idx(0x803, &[many, 1, 1], &vec![0; many as usize]));
    has(&refused(&bomb, &gzip(&idx(0x801, &[2], &[0, 1]))), &["holds 67108864 images and", "2 labels"]);
    let cut = gzip(&idx(0x803, &[many, 100, 100], &[0]));
    let said = refused(&cut, &gzip(&idx(0x801, &[many], &[])));
    has(&said, &["compressed bytes cannot hold the 671088640000 bytes"]);
}

proptest! {
    #[test]
    fn every_image_comes_exactly_once_an_epoch(
        count in 1_u8..100,
        held in 0_u64..50,
        rows in 1_usize..7,
        micro_batches in 1_u32..5,
        seed in any::<u64>(),
    ) {
        let folder = pair(count);
        let (train, _) = Share::Count(held.min(u64::from(count) - 1)).split(count.into());
        let size = train.end;
        let images =
            Images::shuffled(read(folder.path()), train, rows, micro_batches, seed).unwrap();
        let per_step = rows as u64 * u64::from(micro_batches);
        let taken = labels(&images, 0..(3 * size).div_ceil(per_step), micro_batches);
        for epoch in taken.chunks_exact(size as usize) {
            let mut sorted = epoch.to_vec();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..size as u32).collect::<Vec<_>>());
        }
    }
}

fn refused(images: &[u8], labels: &[u8]) -> String {
    let folder = folder(&[("t-images-idx3-ubyte", images), ("t-labels-idx1-ubyte", labels)]);
    message(LabelledImages::read(&folder.path().join("t-images-idx3-ubyte"), None))
}

#[test]
fn a_wrong_magic_number_is_shown_beside_the_right_one() {
    let labels = idx(0x801, &[1], &[0]);
    let said = refused(&labels, &labels);
    has(&said, &["t-images-idx3-ubyte` is not an IDX file"]);
    has(&said, &["starts with 00000801, expected 00000803"]);
    let images = idx(0x803, &[1, 1, 1], &[0]);
    has(
        &refused(&images, &images),
        &["t-labels-idx1-ubyte` is not an IDX file of unsigned bytes with 1 dim"],
    );
    let floats = idx(0xd03, &[1, 1, 1], &[0; 4]);
    assert!(refused(&floats, &labels).contains("starts with 00000d03, expected 00000803"));
}

#[test]
fn truncated_and_overlong_files_say_what_there_is_and_what_is_needed() {
    let labels = idx(0x801, &[2], &[0, 1]);
    let whole = idx(0x803, &[2, 2, 2], &[9; 8]);
    let said = refused(&whole[..whole.len() - 3], &labels);
    has(&said, &["is truncated: it holds 5 of the 8 bytes that its dimensions [2, 2, 2]"]);
    let packed = gzip(&whole);
    assert!(refused(&packed[..packed.len() - 9], &labels).contains("is truncated"));
    assert!(refused(&packed[..packed.len() - 1], &labels).contains("the end of its gzip stream is missing"));
    assert!(refused(&whole[..7], &labels).contains("is truncated: it ends in its dimensions"));
    assert!(refused(&whole[..3], &labels).contains("is truncated: it ends in its magic number"));
    assert!(refused(&[], &labels).ends_with("is empty"));
    assert!(refused(&[&whole[..], &[1]].concat(), &labels).contains("holds more than the 8 bytes"));
    let absurd = idx(0x803, &[u32::MAX, u32::MAX, u32::MAX], &[]);
    assert!(refused(&absurd, &labels).contains("impossible dimensions"));
}

#[test]
fn images_and_labels_that_are_no_pair_are_both_named() {
    let said = refused(&idx(0x803, &[2, 1, 1], &[0, 0]), &idx(0x801, &[3], &[0; 3]));
    has(&said, &["t-images-idx3-ubyte` holds 2 images"]);
    has(&said, &["t-labels-idx1-ubyte` 3 labels: they are not a pair"]);
}

#[test]
fn missing_files_bad_folders_and_bad_labels_are_named() {
    let folder = pair(12);
    let images = read(folder.path());
    images.check_classes(12).unwrap();
    let said = message(images.check_classes(10));
    has(&said, &["t-labels-idx1-ubyte`: label 10 of image 10 is outside the model's 10 classes"]);
    assert!(message(Images::in_order(images, 12..12, 1)).contains("none of its 12 images is for validation"));
    fs::remove_file(folder.path().join("t-labels-idx1-ubyte")).unwrap();
    let said = message(LabelledImages::read(folder.path(), None));
    assert!(said.starts_with("cannot read `") && said.contains("t-labels-idx1-ubyte"), "{said}");
    fs::copy(folder.path().join("t-images-idx3-ubyte"), folder.path().join("a-images-idx3-ubyte")).unwrap();
    assert!(message(LabelledImages::read(folder.path(), None)).contains("holds 2 files of images; name one"));
    assert!(
        message(LabelledImages::read(TempDir::new().unwrap().path(), None)).contains("holds no IDX images")
    );
}

#[test]
fn the_mnist_test_files_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/mnist-t10k");
    if !folder.exists() {
        println!("skipped: {} is absent", folder.display());
        return;
    }
    let images = read(&folder);
    images.check_classes(10).unwrap();
    assert_eq!(images.count(), 10_000);
    let (train, validation) = Share::Count(2000).split(images.count());
    assert_eq!((train.end, validation.end), (8000, 10_000));
    let source = Images::in_order(images, 0..10_000, 5).unwrap();
    let (input, target) = source.micro_batch(0, MicroBatch(0)).unwrap();
    assert_eq!((input.dims(), target.ids()), (&[5, 28, 28][..], &[7, 2, 1, 0, 4][..]));
}
