//! Lists the numbered migrations, so that a new one is a new file and nothing else.
use std::{env, error::Error, fmt::Write as _, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    // Relative, because what cargo remembers may be of another clone that shares its target folder.
    println!("cargo::rerun-if-changed=../../migrations");
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../migrations").canonicalize()?;
    let mut files: Vec<_> = fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()?;
    // The owners of the tables are for a test.
    files.retain(|file| file.file_name() != "owners.txt");
    files.sort_by_key(fs::DirEntry::file_name);
    let mut list = String::from("&[");
    for (place, file) in files.iter().enumerate() {
        let path = file.path();
        let stem = path.file_stem().and_then(|s| s.to_str()).ok_or("a migration has an odd name")?;
        let (number, name) = stem.split_once('_').ok_or("a migration is called NNNN_what_it_does.sql")?;
        let number: usize = number.parse()?;
        if number != place + 1 {
            return Err(format!("migration {stem} should have number {}", place + 1).into());
        }
        write!(
            list,
            "Migration {{ number: {number}, name: {name:?}, sql: include_str!({:?}) }},",
            path.display().to_string()
        )?;
    }
    list.push(']');
    fs::write(Path::new(&env::var("OUT_DIR")?).join("migrations.rs"), list)?;
    Ok(())
}
