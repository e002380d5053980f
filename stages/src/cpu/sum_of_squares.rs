//! Sums of squares.

/// The sum of the squares of these numbers, in double precision, always added up in the same order.
pub(crate) fn sum_of_squares(numbers: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; 8];
    let (chunks, rest) = numbers.as_chunks::<8>();
    for chunk in chunks {
        for (lane, &number) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(number) * f64::from(number);
        }
    }
    let squares = |number: &f32| f64::from(*number) * f64::from(*number);
    lanes.iter().sum::<f64>() + rest.iter().map(squares).sum::<f64>()
}
