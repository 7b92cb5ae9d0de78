use image::{Rgba, RgbaImage};

use super::*;

/// Half red, half blue, so that one can see how it lies.
fn sample(width: u32, height: u32) -> DynamicImage {
    RgbaImage::from_fn(
        width,
        height,
        |x, _| if x < width / 2 { Rgba([255, 0, 0, 255]) } else { Rgba([0, 0, 255, 255]) },
    )
    .into()
}

fn file(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(vec![]);
    let plain = if format == ImageFormat::Jpeg { picture.to_rgb8().into() } else { picture.clone() };
    plain.write_to(&mut out, format).unwrap();
    out.into_inner()
}

fn size(bytes: &[u8]) -> (u32, u32) {
    let picture = image::load_from_memory(bytes).unwrap();
    (picture.width(), picture.height())
}

fn code(outcome: Result<Vec<u8>>) -> &'static str {
    outcome.map_err(|fault| fault.code().name).unwrap_err()
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A chunk between the head of a PNG and its pixels.
fn with_chunk(png: &[u8], kind: &[u8], data: &[u8]) -> Vec<u8> {
    let head = 8 + 25;
    let mut crc = u32::MAX;
    for byte in kind.iter().chain(data) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    [&png[..head], &length, kind, data, &(!crc).to_be_bytes(), &png[head..]].concat()
}

/// EXIF that says how the telephone was held, and where.
fn with_exif(jpeg: &[u8], orientation: u8, place: &[u8]) -> Vec<u8> {
    let mut exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
    exif.extend(place);
    let length = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
    [&jpeg[..2], &[0xff, 0xe1], &length, &exif, &jpeg[2..]].concat()
}

#[test]
fn every_type_is_drawn_small_and_keeps_its_shape() {
    for said in PictureType::ALL {
        let drawn = draw(&file(&sample(1500, 1000), said.format()), said).unwrap();
        assert_eq!(size(&drawn), (512, 341), "{said:?}");
        let shown = if said == PictureType::Jpeg { ImageFormat::Jpeg } else { ImageFormat::Png };
        assert_eq!(image::guess_format(&drawn).unwrap(), shown, "{said:?}");
        assert_eq!(said.shown_as().content_type(), shown.to_mime_type());
    }
    let small = draw(&file(&sample(7, 3), ImageFormat::Png), PictureType::Png).unwrap();
    assert_eq!(size(&small), (7, 3), "what is small stays as it is");
    let thin = draw(&file(&sample(4000, 2), ImageFormat::Png), PictureType::Png).unwrap();
    assert_eq!(size(&thin), (512, 1));
}

#[test]
fn a_photo_is_turned_as_it_was_taken_and_does_not_say_where() {
    let photo = with_exif(&file(&sample(40, 20), ImageFormat::Jpeg), 6, b"GPS 47.3769 8.5417");
    let drawn = draw(&photo, PictureType::Jpeg).unwrap();
    assert_eq!(size(&drawn), (20, 40), "held upright");
    assert!(holds(&photo, b"GPS 47.3769") && !holds(&drawn, b"GPS") && !holds(&drawn, b"Exif"));
}

#[test]
fn words_in_a_picture_and_files_behind_it_are_left_behind() {
    let png = with_chunk(&file(&sample(9, 9), ImageFormat::Png), b"tEXt", b"Comment\0marker-one");
    let polyglot = [png, b"<html><script>marker-two</script>".to_vec()].concat();
    let drawn = draw(&polyglot, PictureType::Png).unwrap();
    assert!(holds(&polyglot, b"marker-one") && holds(&polyglot, b"marker-two"));
    assert!(!holds(&drawn, b"marker") && !holds(&drawn, b"tEXt"));
    assert_eq!(size(&drawn), (9, 9));
}

#[test]
fn what_is_not_a_whole_picture_of_its_type_is_refused() {
    let png = file(&sample(64, 64), ImageFormat::Png);
    for (what, bytes) in [
        ("nothing", vec![]),
        ("SVG", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>".to_vec()),
        ("HTML", b"<!doctype html><script>alert(1)</script>".to_vec()),
        ("another type", file(&sample(64, 64), ImageFormat::Gif)),
        ("the name alone", png[..8].to_vec()),
        ("HTML with the name of a PNG", [&png[..8], b"<script>alert(1)</script>"].concat()),
        ("half of it", png[..png.len() / 2].to_vec()),
        ("changed", png.iter().enumerate().map(|(i, byte)| if i > 60 { byte ^ 1 } else { *byte }).collect()),
    ] {
        assert_eq!(code(draw(&bytes, PictureType::Png)), "not_a_picture", "{what}");
    }
    for said in [PictureType::Gif, PictureType::WebP, PictureType::Jpeg] {
        let whole = file(&sample(64, 64), said.format());
        assert_eq!(code(draw(&whole[..whole.len() / 3], said)), "not_a_picture", "a third of {said:?}");
    }
}

#[test]
fn a_small_file_that_would_fill_the_memory_is_refused_before_it_is_unpacked() {
    let mut huge = file(&sample(4, 4), ImageFormat::Png);
    huge[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    // The head's checksum is made anew: a reader that checks it sees a picture of 60,000 by 60,000.
    let head = with_chunk(&[0; 33], b"IHDR", &huge[16..29]);
    huge.splice(8..33, head[33..58].to_vec());
    assert_eq!(code(draw(&huge, PictureType::Png)), "picture_too_large");
    let real = DynamicImage::new_luma8(6000, 6000);
    let bomb = file(&real, ImageFormat::Png);
    assert!(bomb.len() < 200_000, "{} bytes would be 36 million pixels", bomb.len());
    assert_eq!(code(draw(&bomb, PictureType::Png)), "picture_too_large");
}

#[test]
fn names_tell_what_is_shown() {
    assert_eq!(Shown::of_name("a.png"), Some(Shown::Png));
    assert_eq!(Shown::of_name("a.jpg"), Some(Shown::Jpeg));
    assert!(Shown::of_name("a.html").is_none() && Shown::of_name("png").is_none());
    for said in PictureType::ALL {
        assert_eq!(PictureType::from_value(said.into()), Some(said));
        assert_eq!(serde_json::to_value(said).unwrap(), said.name());
    }
}
