//! Anderson's acceleration of a fixed-point iteration `x = g(x)`: the next point is the combination of the last few `g` whose residuals
//! `g(x) - x` cancel best (Walker and Ni, SIAM J. Numer. Anal. 49(4), 2011, "type II"). On a linear map it does what GMRES does.
//! It costs a few passes over `x` per step and falls back to the plain step when the residual grows.

/// Number of earlier steps that are combined.
const WINDOW: usize = 8;
/// A column that the others explain but for this share of its square adds nothing but rounding.
const DEPENDENT: f64 = 1e-13;
/// Growth of the residual that ends trust in the history.
const GROWTH_MAX: f64 = 2.0;
/// Steps after which an iteration that has not ended is distrusted: from then on it alternates plain, half-way steps, which lead out of the swing in which
/// it is caught, and `TRUSTED` accelerated ones with a new history. The plain ones double in number each time: where they are slow, the acceleration swings
/// again unless they have come near.
const PATIENCE: u32 = 100;
const PLAIN: u32 = 20;
const TRUSTED: u32 = 60;
const HALF_WAY: f64 = 0.5;

/// The memory of one iteration. Reused without allocating while sizes stay.
#[derive(Clone, Debug, Default)]
pub struct Accelerator {
    residual: Vec<f64>,
    last_residual: Vec<f64>,
    last_image: Vec<f64>,
    last_norm: f64,
    /// Differences of residuals and of images, one slot of `x`'s length each.
    residual_steps: Vec<f64>,
    image_steps: Vec<f64>,
    /// Scalar products of residual differences.
    gram: [[f64; WINDOW]; WINDOW],
    used: usize,
    next: usize,
    begun: bool,
    steps: u32,
}

impl Accelerator {
    /// Forgets everything and takes vectors of this length.
    pub fn reset(&mut self, length: usize) {
        for vector in [&mut self.residual, &mut self.last_residual, &mut self.last_image] {
            vector.clear();
            vector.resize(length, 0.0);
        }
        for steps in [&mut self.residual_steps, &mut self.image_steps] {
            steps.clear();
            steps.resize(length * WINDOW, 0.0);
        }
        (self.used, self.next, self.begun, self.last_norm) = (0, 0, false, f64::INFINITY);
        self.steps = 0;
    }

    /// From `x` and its image, the next `x`, no component of which is further than `reach` from the image's: where one would be, the plain step is
    /// taken. An infinite `reach` says that the map is linear: then a residual that grows is no reason for distrust either. Returns the greatest
    /// component of the residual.
    pub fn step(&mut self, x: &mut [f64], image: &[f64], reach: f64) -> f64 {
        let mut greatest = 0.0f64;
        let mut square = 0.0;
        for ((r, x), g) in self.residual.iter_mut().zip(x.iter()).zip(image) {
            *r = g - x;
            greatest = greatest.max(r.abs());
            square += *r * *r;
        }
        let norm = square.sqrt();
        if norm > GROWTH_MAX * self.last_norm && reach.is_finite() {
            (self.used, self.next) = (0, 0);
        } else if self.begun {
            self.remember(image);
        }
        self.last_norm = norm;
        self.begun = true;
        self.last_residual.copy_from_slice(&self.residual);
        self.last_image.copy_from_slice(image);
        x.copy_from_slice(image);
        self.steps += 1;
        if is_plain(self.steps) {
            (self.used, self.next) = (0, 0);
            x.iter_mut().zip(&self.residual).for_each(|(x, r)| *x -= HALF_WAY * r);
        }
        let weights = self.weights();
        let length = x.len();
        for (slot, weight) in weights.iter().enumerate().take(self.used).filter(|(_, w)| **w != 0.0) {
            let steps = &self.image_steps[slot * length..(slot + 1) * length];
            x.iter_mut().zip(steps).for_each(|(x, step)| *x -= weight * step);
        }
        let furthest = x.iter().zip(image).map(|(x, g)| (x - g).abs()).fold(0.0, f64::max);
        if furthest > reach {
            x.copy_from_slice(image);
            (self.used, self.next) = (0, 0);
        }
        if norm.is_finite() { greatest } else { f64::INFINITY }
    }

    /// Puts the difference to the last step into the oldest slot.
    fn remember(&mut self, image: &[f64]) {
        let length = image.len();
        let slot = self.next;
        let range = slot * length..(slot + 1) * length;
        for (index, at) in range.clone().enumerate() {
            self.residual_steps[at] = self.residual[index] - self.last_residual[index];
            self.image_steps[at] = image[index] - self.last_image[index];
        }
        self.next = (slot + 1) % WINDOW;
        self.used = (self.used + 1).min(WINDOW);
        for other in 0..self.used {
            let new = &self.residual_steps[range.clone()];
            let old = &self.residual_steps[other * length..(other + 1) * length];
            let product = new.iter().zip(old).map(|(a, b)| a * b).sum();
            self.gram[slot][other] = product;
            self.gram[other][slot] = product;
        }
    }

    /// Weights of the remembered steps that leave the least residual: the normal equations, by Cholesky's method.
    fn weights(&self) -> [f64; WINDOW] {
        let length = self.residual.len();
        let mut factor = [[0.0; WINDOW]; WINDOW];
        let mut weights = [0.0; WINDOW];
        for row in 0..self.used {
            let steps = &self.residual_steps[row * length..(row + 1) * length];
            let mut right: f64 = steps.iter().zip(&self.residual).map(|(a, b)| a * b).sum();
            for column in 0..=row {
                let known: f64 = (0..column).map(|k| factor[row][k] * factor[column][k]).sum();
                let rest = self.gram[row][column] - known;
                if column < row {
                    let pivot: f64 = factor[column][column];
                    factor[row][column] = if pivot > 0.0 { rest / pivot } else { 0.0 };
                    right -= factor[row][column] * weights[column];
                } else if rest > DEPENDENT * self.gram[row][row] {
                    factor[row][row] = rest.sqrt();
                }
            }
            let pivot = factor[row][row];
            weights[row] = if pivot > 0.0 { right / pivot } else { 0.0 };
        }
        for row in (0..self.used).rev() {
            let later: f64 = (row + 1..self.used).map(|k| factor[k][row] * weights[k]).sum();
            let pivot = factor[row][row];
            weights[row] = if pivot > 0.0 { (weights[row] - later) / pivot } else { 0.0 };
        }
        weights
    }
}

/// Whether the `step`th is a plain one.
fn is_plain(step: u32) -> bool {
    let Some(mut into) = step.checked_sub(PATIENCE) else { return false };
    let mut plain = PLAIN;
    while into >= plain + TRUSTED {
        into -= plain + TRUSTED;
        plain *= 2;
    }
    into < plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_steps_double_between_accelerated_ones() {
        let plain: Vec<u32> = (0..500).filter(|&step| is_plain(step)).collect();
        let expected: Vec<u32> = (100..120).chain(180..220).chain(280..360).chain(420..500).collect();
        assert_eq!(plain, expected);
    }

    /// A linear map with a few eigenvalues near 1, as a network with several full stations has: the plain iteration would need 20,000 steps.
    #[test]
    fn a_slow_linear_iteration_becomes_fast() {
        let length = 60;
        let rate = |i: usize| [0.999, 0.99, 0.9, 0.5, 0.1, 0.0][i % 6];
        let mut x: Vec<f64> = (0..length).map(|i| (i % 7) as f64).collect();
        let mut accelerator = Accelerator::default();
        accelerator.reset(length);
        let mut steps = 0;
        loop {
            let image: Vec<f64> = x.iter().enumerate().map(|(i, x)| rate(i) * x + 1.0).collect();
            steps += 1;
            assert!(steps < 40, "not there after {steps} steps");
            if accelerator.step(&mut x, &image, f64::INFINITY) < 1e-9 {
                break;
            }
        }
        for (i, x) in x.iter().enumerate() {
            let true_x = 1.0 / (1.0 - rate(i));
            assert!((x / true_x - 1.0).abs() < 1e-6, "component {i}: {x} for {true_x}");
        }
    }
}
