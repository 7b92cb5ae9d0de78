//! Pictures are told by their bytes and drawn anew, so that what people see holds nothing but what can be seen: no
//! place where a photo was taken, no second file behind the first, nothing a browser could run.
use std::{io::Cursor, sync::Arc};

use db::{FromValue, Value};
use image::{
    DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, Limits,
    codecs::{jpeg::JpegEncoder, png::PngEncoder},
    metadata::Orientation,
};
use kernel::{
    Janua,
    fault::{Code, Fault, INTERNAL, Result},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::Semaphore, task::spawn_blocking};

pub const NOT_A_PICTURE: Code =
    Code::new(400, "not_a_picture", "The file is not a complete picture of the announced type.");
pub const PICTURE_TOO_LARGE: Code = Code::new(400, "picture_too_large", "This picture has too many pixels.");

/// As wide and as high as a picture is shown at the most.
const LARGEST_SHOWN: u32 = 512;
/// The size of photos of today's phones, and little more: a small file can hold a picture that fills the memory.
const MOST_PIXELS: u64 = 25_000_000;
const LONGEST_SIDE: u32 = 12_000;
const MOST_MEMORY: u64 = 256 * 1024 * 1024;
/// How many pictures are drawn at once: one can take a few hundred megabytes.
const HANDS: usize = 1;
const JPEG_QUALITY: u8 = 85;

/// The supported types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PictureType {
    #[serde(rename = "image/png")]
    Png,
    #[serde(rename = "image/jpeg")]
    Jpeg,
    #[serde(rename = "image/webp")]
    WebP,
    #[serde(rename = "image/gif")]
    Gif,
}

impl PictureType {
    const ALL: [Self; 4] = [Self::Png, Self::Jpeg, Self::WebP, Self::Gif];

    pub fn name(self) -> &'static str {
        self.format().to_mime_type()
    }

    fn format(self) -> ImageFormat {
        match self {
            Self::Png => ImageFormat::Png,
            Self::Jpeg => ImageFormat::Jpeg,
            Self::WebP => ImageFormat::WebP,
            Self::Gif => ImageFormat::Gif,
        }
    }

    /// The format that it is shown in: a photo stays one, any other picture may be transparent in places.
    pub fn shown_as(self) -> Shown {
        if self == Self::Jpeg { Shown::Jpeg } else { Shown::Png }
    }
}

impl From<PictureType> for Value {
    fn from(picture: PictureType) -> Self {
        picture.name().into()
    }
}
impl FromValue for PictureType {
    fn from_value(value: Value) -> Option<Self> {
        let name = String::from_value(value)?;
        Self::ALL.into_iter().find(|picture| picture.name() == name)
    }
}

/// The format of a stored picture, which is the extension of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Png,
    Jpeg,
}

impl Shown {
    pub fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        [Self::Png, Self::Jpeg].into_iter().find(|shown| shown.extension() == extension)
    }
}

/// Where pictures are drawn, a few at a time.
pub struct Studio(Arc<Semaphore>);

impl Default for Studio {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(HANDS)))
    }
}

/// The picture as it may be shown. It takes a processor for a while, so it happens beside the threads that answer.
pub async fn draw_anew(janua: &Janua, bytes: Vec<u8>, said: PictureType) -> Result<Vec<u8>> {
    let studio = janua.own::<Studio>().0.clone();
    let hand = studio.acquire_owned().await.map_err(|closed| INTERNAL.caused_by(closed))?;
    let drawn = spawn_blocking(move || {
        let drawn = draw(&bytes, said);
        // Held until here even if nobody waits any more: the memory is taken until here as well.
        drop(hand);
        drawn
    });
    // A decoder that panics was given something that is no picture.
    drawn.await.map_err(|panic| NOT_A_PICTURE.caused_by(panic))?
}

fn draw(bytes: &[u8], said: PictureType) -> Result<Vec<u8>> {
    let refused = |error: image::ImageError| match error {
        image::ImageError::Limits(_) => PICTURE_TOO_LARGE.caused_by(error),
        _ => NOT_A_PICTURE.caused_by(error),
    };
    // Only the decoder of the type it was said to have is asked, and that one knows its own by their first bytes.
    let mut reader = ImageReader::with_format(Cursor::new(bytes), said.format());
    let mut limits = Limits::default();
    limits.max_image_width = Some(LONGEST_SIDE);
    limits.max_image_height = Some(LONGEST_SIDE);
    limits.max_alloc = Some(MOST_MEMORY);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(refused)?;
    // Asked before anything is unpacked.
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > MOST_PIXELS || decoder.total_bytes() > MOST_MEMORY {
        return Err(PICTURE_TOO_LARGE.into());
    }
    // Telephones write down how they were held instead of turning the photo. Only photos are asked: a WebP may say that
    // its notes take four gigabytes, and its decoder would make room for them.
    let orientation = match said {
        PictureType::Jpeg => decoder.orientation().map_err(refused)?,
        _ => Orientation::NoTransforms,
    };
    let mut picture = DynamicImage::from_decoder(decoder).map_err(refused)?;
    if width > LARGEST_SHOWN || height > LARGEST_SHOWN {
        picture = picture.thumbnail(LARGEST_SHOWN, LARGEST_SHOWN);
    }
    picture.apply_orientation(orientation);
    encode(&picture, said.shown_as()).map_err(|error| INTERNAL.caused_by(error))
}

/// Only the pixels go in: what else the file held is left behind.
fn encode(picture: &DynamicImage, shown: Shown) -> image::ImageResult<Vec<u8>> {
    let mut out = vec![];
    match shown {
        Shown::Jpeg => {
            let plain = DynamicImage::ImageRgb8(picture.to_rgb8());
            plain.write_with_encoder(JpegEncoder::new_with_quality(&mut out, JPEG_QUALITY))?;
        }
        Shown::Png => {
            let plain = if picture.color().has_alpha() {
                DynamicImage::ImageRgba8(picture.to_rgba8())
            } else {
                DynamicImage::ImageRgb8(picture.to_rgb8())
            };
            plain.write_with_encoder(PngEncoder::new(&mut out))?;
        }
    }
    Ok(out)
}

/// Whether a fault refuses the picture itself, and is no failure of the store.
pub fn is_refusal(fault: &Fault) -> bool {
    [NOT_A_PICTURE, PICTURE_TOO_LARGE].contains(&fault.code())
}

#[cfg(test)]
mod tests;
