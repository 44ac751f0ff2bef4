#!/usr/bin/env bash
# Draws sentences of comments and help texts, and names of functions, at random from the program. A reader familiar with PyTorch
# and MPI, and not with this repository, should understand each at first reading.
#     tests/lint/sample_language.sh [SEED [COUNT]]
# Equal seeds (default 1) give equal samples of the same tree. COUNT (10) is the number of sentences, and of names.
set -u
cd "${BT_SRC:-$(dirname "$0")/../..}" || exit 1
git ls-files cli engine monitor store web | grep -E '\.(c|h|def|js)$' | grep -v -e /golden/ -e /vendor/ |
    perl -Mopen=:std,:encoding\(UTF-8\) -MDigest::MD5=md5_hex -MEncode=encode_utf8 -e '
        use strict;
        my ($seed, $count) = @ARGV;
        my (%sentence, %name);
        while (my $file = <STDIN>) {
            chomp $file;
            open my $f, "<", $file or next;
            local $/;
            my $text = <$f>;
            my @texts;
            push @texts, defined $1 ? $1 : $2 while $text =~ m{/\*(.*?)\*/|//([^\n]*)}gs;
            if ($file =~ /\.def$/) {
                push @texts, $1 while $text =~ /"((?:[^"\\]|\\.){20,})"/gs;
            }
            for my $t (@texts) {
                $t =~ s/\n\s*\*?/ /g;
                $t =~ s/\s+/ /g;
                for my $s (split /(?<=[.;:?!]) (?=[A-Z])/, $t) {
                    $s =~ s/^[ *=-]+|[ *=-]+$//g;
                    my $words = () = $s =~ /[A-Za-z]{2,}/g;
                    $sentence{$s} = $file if $words >= 5;
                }
            }
            next unless $file =~ /\.c$/;
            # a definition: its name at the beginning of a line with the type, and the body behind its arguments
            $name{$1} = $file while $text =~ /^(?!typedef|return|else|if)[A-Za-z_][\w \*]*?[ \*](\w+)\([^;{}()]*(?:\([^()]*\)[^;{}()]*)*\)\s*\{/mg;
        }
        sub draw {
            my ($from) = @_;
            my @drawn = sort { md5_hex(encode_utf8("$seed $a")) cmp md5_hex(encode_utf8("$seed $b")) } keys %$from;
            return @drawn[0 .. ($count < @drawn ? $count : @drawn) - 1];
        }
        printf "%d sentences, %d functions, seed %s\n\n", scalar keys %sentence, scalar keys %name, $seed;
        print "$sentence{$_}: $_\n" for draw(\%sentence);
        print "\n";
        print "$name{$_}: $_\n" for draw(\%name);' "${1:-1}" "${2:-10}"
