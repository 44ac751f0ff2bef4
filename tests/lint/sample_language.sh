#!/usr/bin/env bash
# Draws sentences of comments and help texts, and names of functions, at random from the program and its tests. A reader
# familiar with PyTorch and MPI, and not with this repository, should understand each at first reading.
#     tests/lint/sample_language.sh [SEED [COUNT [FOLDER...]]]
# Equal seeds (default 1) give equal samples of the same tree. COUNT (10) is the number of sentences, and of names. A
# comment after code is printed with the code that it describes.
set -u
cd "${BT_SRC:-$(dirname "$0")/../..}" || exit 1
seed=${1:-1} count=${2:-10}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- cli engine monitor store tests web
git ls-files "$@" | grep -E '\.(c|h|def|js|mjs|sh)$' | grep -v -e /golden/ -e /vendor/ -e /node_modules/ |
    perl -Mopen=:std,:encoding\(UTF-8\) -MDigest::MD5=md5_hex -MEncode=encode_utf8 -e '
        use strict;
        my ($seed, $count) = @ARGV;
        my (%sentence, %name);

        sub add { # adds the sentences of one comment or help text; code: the code in front of it on its line
            my ($file, $text, $code) = @_;
            $text =~ s/\n\s*\*?/ /g;
            $text =~ s/\s+/ /g;
            for my $s (split /(?<=[.?!]) (?=[A-Z])/, $text) {
                $s =~ s/^(?:[ *=]|-(?!\d))+|[ *=-]+$//g;
                my $words = () = $s =~ /[A-Za-z]{2,}/g;
                my $blanks = () = $s =~ / /g;
                next if $words < 5 || $blanks < 4 || $s =~ /^(?:NOLINT|cppcheck|clang-format|ctest:)| AS \w+,|^SELECT /;
                $sentence{$s} = $code ? "$file: $code  <- " : "$file: ";
            }
        }

        while (my $file = <STDIN>) {
            chomp $file;
            open my $f, "<", $file or next;
            local $/;
            my $text = <$f>;
            if ($file =~ /\.sh$/) { # adjacent lines are one comment
                add($file, $1 =~ s/^[ \t]*#//gmr, "") while $text =~ /((?:^[ \t]*#(?!!)[^\n]*\n)+)/mg;
                next;
            }
            if ($file =~ /\.m?js$/) { 1 while $text =~ s{(^[ \t]*//[^\n]*)\n[ \t]*//}{$1}mg; }
            # strings are read as well, because they may contain comment markers
            while ($text =~ m{("(?:[^"\\\n]|\\.)*"|\x27(?:[^\x27\\\n]|\\.)*\x27)|/\*(.*?)\*/|(?<![:\w])//([^\n]*)}gs) {
                my ($string, $comment, $at) = ($1, $2 // $3, $-[0]);
                if (defined $string) {
                    add($file, substr($string, 1, -1), "") if $file =~ /\.def$/;
                    next;
                }
                my $code = substr($text, 0, $at) =~ /([^\n]*)\z/ ? $1 : "";
                $code =~ s/^\s+|\s+$//g;
                add($file, $comment, $file =~ /\.def$/ ? "" : $code);
            }
            next unless $file =~ /\.c$/;
            # a definition: its name at the beginning of a line with the type, and the body after its arguments
            $name{$1} = "$file: " while $text =~ /^(?!typedef|return|else|if)[A-Za-z_][\w \*]*?[ \*](\w+)\([^;{}()]*(?:\([^()]*\)[^;{}()]*)*\)\s*\{/mg;
        }

        sub draw {
            my ($from) = @_;
            my @drawn = sort { md5_hex(encode_utf8("$seed $a")) cmp md5_hex(encode_utf8("$seed $b")) } keys %$from;
            return @drawn[0 .. ($count < @drawn ? $count : @drawn) - 1];
        }
        printf "%d sentences, %d functions, seed %s\n\n", scalar keys %sentence, scalar keys %name, $seed;
        print "$sentence{$_}$_\n" for draw(\%sentence);
        print "\n";
        print "$name{$_}$_\n" for draw(\%name);' "$seed" "$count"
