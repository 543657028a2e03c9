"""Sample input of the demo tools, so that one click on Run works."""

# The opening of "Alice's Adventures in Wonderland" (Lewis Carroll, 1865; public domain).
ALICE = """\
Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: \
once or twice she had peeped into the book her sister was reading, but it had no pictures or conversations \
in it, "and what is the use of a book," thought Alice "without pictures or conversations?"

So she was considering in her own mind (as well as she could, for the hot day made her feel very sleepy \
and stupid), whether the pleasure of making a daisy-chain would be worth the trouble of getting up and \
picking the daisies, when suddenly a White Rabbit with pink eyes ran close by her.

There was nothing so very remarkable in that; nor did Alice think it so very much out of the way to hear \
the Rabbit say to itself, "Oh dear! Oh dear! I shall be late!" (when she thought it over afterwards, it \
occurred to her that she ought to have wondered at this, but at the time it all seemed quite natural); but \
when the Rabbit actually took a watch out of its waistcoat-pocket, and looked at it, and then hurried on, \
Alice started to her feet, for it flashed across her mind that she had never before seen a rabbit with \
either a waistcoat-pocket, or a watch to take out of it, and burning with curiosity, she ran across the \
field after it, and fortunately was just in time to see it pop down a large rabbit-hole under the hedge.
"""

# Three lines are wrong on purpose: a word for a number, a missing field, one field too many.
ORDERS = """\
order,customer,city,items,price
1001,Ada Lovelace,London,3,42.50
1002,Grace Hopper,New York,1,18.00
1003,Alan Turing,Manchester,12,7.25
1004,Katherine Johnson,Hampton,2,96.10
1005,Edsger Dijkstra,Rotterdam,5,11.99
1006,Barbara Liskov,Boston,four,23.40
1007,Donald Knuth,Stanford,7,64.00
1008,Margaret Hamilton,Boston,1,350.00
1009,Tony Hoare,Oxford,9,5.75
1010,Frances Allen,Peru
1011,Niklaus Wirth,Zurich,4,31.20
1012,Radia Perlman,Seattle,6,12.80
1013,Dennis Ritchie,Murray Hill,2,77.70
1014,Ken Thompson,Murray Hill,8,77.70
1015,Adele Goldberg,Cleveland,3,49.00
1016,John McCarthy,Stanford,1,15.60
1017,Hedy Lamarr,Vienna,10,8.90
1018,Claude Shannon,Cambridge,2,128.00,gift
1019,Joan Clarke,London,5,26.30
1020,Robin Milner,Edinburgh,3,33.33
1021,Leslie Lamport,New York,4,19.45
1022,Shafi Goldwasser,New York,2,205.00
1023,Tim Berners-Lee,London,11,6.40
1024,Karen Sparck Jones,Cambridge,6,14.15
"""
