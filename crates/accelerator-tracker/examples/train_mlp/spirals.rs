use accelerator::{Buffer, Result};

/// Points in the plane on three spirals, and the spiral of each point.
pub(crate) struct Spirals {
    /// The two coordinates of each point.
    pub(crate) points: Buffer,
    pub(crate) labels: Buffer,
    pub(crate) count: usize,
}

pub(crate) const SPIRALS: usize = 3;

impl Spirals {
    pub(crate) fn new(count: usize) -> Result<Self> {
        let mut noise = Noise(7);
        let (mut points, mut labels) = (Vec::new(), Vec::new());
        for number in 0..count {
            let spiral = number % SPIRALS;
            let radius = 0.05 + 0.95 * (number / SPIRALS) as f32 / (count / SPIRALS) as f32;
            let angle = 4.0 * radius + spiral as f32 * std::f32::consts::TAU / SPIRALS as f32 + 0.1 * noise.next();
            points.extend([radius * angle.cos(), radius * angle.sin()]);
            labels.push(spiral as u32);
        }
        let (points, labels) = (Buffer::from_slice(&points, None)?, Buffer::from_slice(&labels, None)?);
        Ok(Self { points, labels, count })
    }
}

/// Pseudorandom numbers between -1 and 1, the same in every run.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }
}
