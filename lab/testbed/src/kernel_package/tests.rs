use super::*;
use crate::TempDir;

/// Replacements of Debian's programs. The package is the empty file `image.deb`.
struct Fake {
    directory: TempDir,
}

impl Fake {
    fn new() -> Self {
        let fake = Self { directory: TempDir::new("fake-apt").unwrap() };
        fake.write("apt-cache", "[ \"$LC_ALL\" = C ] || exit 0\necho '  Depends: linux-image-1-cloud-amd64'");
        fake.write("apt-get", "echo \"$*\" >> $0.calls\nsleep 0.2\n: > image.deb");
        fake.write("dpkg-deb", "mkdir -p $3/boot $3/usr/lib/modules/1\n: > $3/boot/vmlinuz-1");
        fake
    }

    fn write(&self, program: &str, script: &str) {
        crate::write_script(&self.directory.file(program), script);
    }

    fn obtain(&self, cache: &Path) -> Result<PathBuf> {
        Programs(self.directory.path().to_str().unwrap()).obtain(cache, &|_| {})
    }

    /// Number of calls of apt-get.
    fn downloads(&self) -> usize {
        fs::read_to_string(self.directory.file("apt-get.calls")).unwrap_or_default().lines().count()
    }
}

/// Names in a cache directory, except the lock.
fn names(cache: &Path) -> Vec<String> {
    let entries = fs::read_dir(cache).unwrap().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).filter(|name| name != LOCK).collect()
}

#[test]
fn a_cached_kernel_is_not_downloaded_again() {
    let cache = TempDir::new("kernel-cache").unwrap();
    fs::create_dir(unpacked_kernel(cache.path())).unwrap();
    let report = |line: &str| panic!("it works although the kernel is cached: {line}");
    assert_eq!(obtain_kernel(cache.path(), &report).unwrap(), cache.file("kernel"));
}

#[test]
fn versioned_package_is_found_in_the_dependencies() {
    let listing = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
    assert_eq!(parse_dependency(listing).unwrap(), "linux-image-6.1.0-56-cloud-amd64");
    assert_eq!(parse_dependency("linux-image-cloud-amd64\n  Breaks: other\n"), None);
}

#[test]
fn the_package_is_unpacked_into_the_cache() {
    let (fake, cache) = (Fake::new(), TempDir::new("kernel-cache").unwrap());
    let kernel = fake.obtain(&cache.file("new/cache")).unwrap();
    assert_eq!(kernel, cache.file("new/cache/kernel"));
    assert!(kernel.join("boot/vmlinuz-1").is_file());
    assert!(kernel.join("lib/modules/1").is_dir());
    assert!(!kernel.join("image.deb").exists());
    assert_eq!(names(&cache.file("new/cache")), ["kernel"]);
}

#[test]
fn two_runs_at_once_download_once() {
    let (fake, cache) = (Fake::new(), TempDir::new("kernel-cache").unwrap());
    std::thread::scope(|scope| {
        let runs = [0; 2].map(|_| scope.spawn(|| fake.obtain(cache.path()).unwrap()));
        for run in runs {
            assert!(run.join().unwrap().join("boot/vmlinuz-1").is_file());
        }
    });
    assert_eq!((fake.downloads(), names(cache.path())), (1, vec!["kernel".into()]));
}

#[test]
fn what_a_killed_run_has_left_is_removed_and_never_used() {
    let (fake, cache) = (Fake::new(), TempDir::new("kernel-cache").unwrap());
    // Another process may have had the process ID of this one.
    for id in [1, std::process::id()] {
        let partial = cache.file(&format!("{PARTIAL}{id}"));
        fs::create_dir(&partial).unwrap();
        fs::write(partial.join("half.deb.partial"), "half").unwrap();
    }
    let kernel = fake.obtain(cache.path()).unwrap();
    assert!(!kernel.join("half.deb.partial").exists());
    assert_eq!(names(cache.path()), ["kernel"]);
}

#[test]
fn a_failed_step_leaves_nothing_behind() {
    let (fake, cache) = (Fake::new(), TempDir::new("kernel-cache").unwrap());
    fake.write("apt-get", "echo 'E: Failed to fetch image.deb' >&2\nexit 100");
    let offline = fake.obtain(cache.path()).unwrap_err().to_string();
    assert!(offline.contains("E: Failed to fetch image.deb; check the network"), "{offline}");
    assert!(names(cache.path()).is_empty());
    fake.write("apt-get", ": > image.deb");
    fake.write("dpkg-deb", "mkdir -p $3/boot\nexit 2");
    assert!(fake.obtain(cache.path()).unwrap_err().to_string().contains("dpkg-deb -x"));
    assert!(names(cache.path()).is_empty());
}

#[test]
fn missing_programs_and_package_lists_are_named() {
    let (fake, cache) = (Fake::new(), TempDir::new("kernel-cache").unwrap());
    fake.write("apt-cache", "echo 'E: No packages found' >&2\nexit 100");
    let lists = fake.obtain(cache.path()).unwrap_err().to_string();
    assert!(lists.contains("run `apt-get update`") && lists.contains("E: No packages found"), "{lists}");
    fs::remove_file(fake.directory.file("apt-get")).unwrap();
    let program = fake.obtain(cache.path()).unwrap_err().to_string();
    assert!(program.contains("/apt-get of Debian: cannot download a kernel"), "{program}");
}
