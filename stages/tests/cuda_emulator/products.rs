//! Compares the emulated cuBLASLt with a plain loop.

use cudarc::cublaslt::sys::cublasLtEpilogue_t as Epilogue;

use crate::product::{BF16, Buffers, Case, F32, PLAIN, download, multiply, prepare, stream};

fn close(found: f32, wanted: f32, case: &Case) {
    let tolerance = if case.out == BF16 { 1e-2 } else { 1e-5 };
    assert!((found - wanted).abs() <= tolerance * wanted.abs().max(1.0), "{found} is not {wanted}");
}

fn places(case: &Case) -> impl Iterator<Item = (usize, usize, usize)> {
    let (m, n) = (case.m, case.n);
    (0..case.batches * m * n).map(move |i| (i / (m * n), i % m, i / m % n))
}

#[test]
fn products_are_those_of_a_plain_loop() {
    let Some(stream) = stream() else { return };
    let types = [(F32, F32), (BF16, BF16), (BF16, F32)];
    for ((kind, out), turned) in
        types.iter().flat_map(|types| (0..4).map(move |bits| (*types, [bits & 1 == 1, bits & 2 == 2])))
    {
        for (beta, batches) in [(0.0, 1), (1.0, 1), (0.25, 3)] {
            let case = Case { turned, kind, out, beta, batches, ..PLAIN };
            let ([a, b, c, ..], buffers) = prepare(&case, stream);
            multiply(&case, &buffers, stream, 0).expect("a product");
            let found = download(buffers.d, c.len(), out, stream);
            let ([.., ldd], [.., size]) = (case.leading(), case.sizes());
            for place @ (batch, row, col) in places(&case) {
                close(found[batch * size + col * ldd + row], case.element(&a, &b, &c, place), &case);
            }
            assert_eq!(found[case.m], c[case.m], "what lies between columns stays as it is");
        }
    }
}

fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh())
}

#[test]
fn epilogues_add_biases_and_go_through_gelu() {
    let Some(stream) = stream() else { return };
    for kind in [F32, BF16] {
        let case = Case { kind, out: kind, epilogue: Epilogue::CUBLASLT_EPILOGUE_GELU_AUX_BIAS, ..PLAIN };
        let ([a, b, c, bias, aux], buffers) = prepare(&case, stream);
        multiply(&case, &buffers, stream, 0).expect("a product");
        let found = download(buffers.d, c.len(), kind, stream);
        let kept = download(buffers.aux, aux.len(), kind, stream);
        for place @ (_, row, col) in places(&case) {
            let before = case.element(&a, &b, &c, place) + bias[row];
            close(kept[col * 8 + row], before, &case);
            close(found[col * case.leading()[2] + row], gelu(before), &case);
        }
        let case = Case { epilogue: Epilogue::CUBLASLT_EPILOGUE_DGELU, ..case };
        let ([a, b, c, _, aux], buffers) = prepare(&case, stream);
        multiply(&case, &buffers, stream, 0).expect("a product");
        let found = download(buffers.d, c.len(), kind, stream);
        for place @ (_, row, col) in places(&case) {
            let x = aux[col * 8 + row];
            let slope = (gelu(x + 1e-2) - gelu(x - 1e-2)) / 2e-2;
            let wanted = case.element(&a, &b, &c, place) * slope;
            let value = found[col * case.leading()[2] + row];
            assert!((value - wanted).abs() < 2e-2, "{value} is not {wanted}");
        }
    }
}

#[test]
fn epilogues_sum_the_inputs_for_a_biass_gradient() {
    let Some(stream) = stream() else { return };
    for (epilogue, side) in [(Epilogue::CUBLASLT_EPILOGUE_BGRADA, 0), (Epilogue::CUBLASLT_EPILOGUE_BGRADB, 1)]
    {
        let case = Case { kind: BF16, epilogue, turned: [false, true], ..PLAIN };
        let ([a, b, _, bias, _], buffers) = prepare(&case, stream);
        multiply(&case, &buffers, stream, 0).expect("a product");
        let found = download(buffers.bias, bias.len(), F32, stream);
        let (values, ld, length) =
            if side == 0 { (&a, case.leading()[0], case.m) } else { (&b, case.leading()[1], case.n) };
        for index in 0..length {
            close(found[index], (0..case.k).map(|k| values[k * ld + index]).sum(), &case);
        }
    }
}

#[test]
fn wrong_products_are_refused() {
    let Some(stream) = stream() else { return };
    let (_, buffers) = prepare(&PLAIN, stream);
    assert!(multiply(&PLAIN, &buffers, stream, 1).is_err(), "a byte of workspace is missing");
    let shifted = Buffers { a: buffers.a + 4, ..buffers };
    assert!(multiply(&PLAIN, &shifted, stream, 0).is_err(), "not as aligned as preferred");
    let mixed = Case { out: BF16, ..PLAIN };
    assert!(multiply(&mixed, &buffers, stream, 0).is_err(), "f32 in, bf16 out");
    let large = Case { m: 70, ..PLAIN };
    assert!(multiply(&large, &buffers, stream, 0).is_err(), "more than is allocated");
}
