"""Commands that list what comes with fedcm, and `fedcm check`, which checks an algorithm of your own."""
