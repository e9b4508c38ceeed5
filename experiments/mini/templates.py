"""Sentence templates of the `mini` corpus, one a line; a leading `3*` is the weight (default 1).

`{name}` is a slot (a word list of words.py or a number of text.py). "a" becomes "an" by sound.
Slots are many and independent, so that a language model cannot complete the sentence.
"""

from __future__ import annotations

TRAIN = """
3*{first} {last} {vt_past} {small} {adj} {things} in {city}.
3*My {relative} {first} {vt_past} a {color} {thing} and a {material} {thing}.
3*The {adj} {job} {adv} {vt_past} the {color} {thing}.
3*{title} {last} will meet {title} {last} at {clock} {ampm}
3*The {job} left {city} at {clock} and arrived at {clock}.
2*On {month} {dayth}, {first} moved from {city} to {city}.
2*{first} was born in {city} in {year}.
2*The {thing} cost {price}, but {first} paid {price}.
2*Please send {big} {things} to {city} by {day}.
3*The words were {thing}, {animal}, {adj}, and {material}.
2*Flight {code} to {city} leaves from gate {seat} at {clock}.
2*Call {first} {last} at {phone} before {day}.
2*About {percent} of all {jobs} {vt_base} their {adj} {things}.
2*{first}, {first}, and {first} {vi_past} {adv}.
2*Did {first} {vt_base} the {material} {thing} or the {adj} {thing}?
2*In {year}, {title} {last} {vt_past} a {adj} {thing} near {city}.
The {animal} {adv} followed {small} {adj} {animals} into the {place}.
I saw a {adj} {animal} behind the {place} on {day}.
{first} keeps {small} {animals} and {num} {color} {animals}.
Two {jobs} wanted to see the {place}, and {first} wanted to go too.
Their {thing} is over there, beside the {adj} {place}.
They're leaving their {things} there for {first} {last}.
{first} ate eight {adj} {things} full of {food}.
They waited four hours for {small} {things} and a {animal}.
The flower on the {thing} was covered in flour and {food}.
I knew the new {job} would buy wood by {day}.
{first} can hear the {animal} from here, right by the {place}.
Write the right number, {bignum}, on each {color} {thing}.
Our {job} will be here within {num} {span} and one hour.
A weak {job} {vt_past} {small} {things} last week.
{first} hid the red {thing}, then {vt_past} the blue {thing}.
The {color} {animal} blew a whistle while {first} {vi_past}.
No, I know {num} {jobs} who {vt_base} {material} {things}.
{first} rode a {animal} along the road from {city} to {city}.
The {relative} sent {num} cents and a bottle with the scent of {food}.
One {job} won {price} by {vt_ing} a {adj} {thing}.
The knight spent {small} nights inside a {material} {place}.
{first} served plain {food} and {food} on the plane to {city}.
We met the {job} and ate meat with {food} and {food}.
They made the maid {cook_base} {food} for {num} {jobs}.
The deer looked at dear {first} and {adv} {vi_past}.
A pair of {animals} shared one pear and some {food}.
He threw the {thing} through a {adj} {place} window.
The whole {thing} fell into a hole near {tree} {road}.
{first} {last} lives at {house} {tree} {road} in {city}.
The {place} on {tree} {road} closes at {clock} {ampm}
The {job} at St.=saint {saint} Hospital {vt_past} {small} {things}.
{title} {last} teaches {subject} and {subject} in {language}.
{first} speaks {language} and {language}, but not {language}.
Would you rather {vt_base} a {thing} or {cook_base} {food}?
How many {adj} {things} did {title} {last} {vt_base}?
Why is {first} {vt_ing} that {adj} {color} {thing}?
When will the {job} {vt_base} my {material} {thing}?
Where did your {relative} {cook_base} the {adj} {food}?
Who {vt_past} the {thing} that {first} {last} {vt_past}?
{first} {cook_past} {food} and {food} for the {adj} {jobs}.
Mix {small} cups of {food} with {num} ounces of {food}.
We need {food}, {food}, and {small} {adj} {things}.
Tomorrow will be {weather} and {weather} in {city}, with {num} degrees at noon.
It was {weather} in {country} and {weather} in {city} on {day}.
The {place} is {decimal} miles from {city} and {num} from {city}.
{first} {hurt_past} her {body} and her {body} while playing {sport}.
His {relative} {hurt_past} a {body} on {month} {dayth}.
The score in {sport} was {num} to {num} for {country}.
{first} finished {place_nth} out of {bignum} in {sport}.
The {nth} {job} {adv} {vt_past} a {thing}.
The {vehicle} to {city} was {num} {span} late.
{first} drove a {color} {vehicle} and a {adj} {vehicle} across {country}.
The {job} said that {big} {jobs} {vi_past} in {year}.
{title} {last} wrote {num} books about {topic} and {topic}.
She gave a talk on {topic}, {topic}, and {subject}.
During the {decade}, {country} sold {thousands} {things} to {country}.
{first} plays the {instrument}, and {first} plays the {instrument}.
My {relative} felt {feeling}, but {first} felt {feeling}.
The {feeling} {job} {adv} {vt_past} a {thing} and {vi_past}.
Farmers in {country} grow {crop}, {crop}, and {crop}.
{first} {said} that {title} {last} {vt_past} a {adj} {animal}.
The {job} {said} that {percent} of the {crop} was ruined.
{title} {last} {said} it weighed {bignum} {unit}.
The {material} {place} is {bignum} {unit} long and {num} {unit} wide.
Room {seat} holds {num} {things} and {small} {vehicles}.
The code is {code}, and the number is {phone}.
{first} owes {price} to {first} and {price} to {first}.
The {material} {thing} weighs {decimal} pounds and costs {price}.
Turn left at {tree} {road}, then walk {bignum} {unit}.
Each {job} {vt_s} {num} {things} and {vt_s} a {thing}.
If {first} {vi_s}, the {adj} {job} {vt_s} a {thing}.
Never {vt_base} a {adj} {thing} without {num} {things}.
The {place} was built in {year} by {title} {last}.
Between {year} and {year}, {big} {jobs} lived in {city}.
{first} {see_past} {small} {animals} and a {adj} {animal}.
Nobody {see_past} the {color} {animal} near {city}.
"""

HELD_OUT = """
Although {first} {last} was {feeling}, nobody blamed the {job}.
Neither the {thing} nor the {material} {thing} belongs to {title} {last}.
Shall we hire {num} more {jobs} before {month}?
{first} inherited a {adj} {thing} worth {price}.
Except for {first}, everybody disliked the {adj} {food}.
According to {title} {last}, {percent} of {animals} avoid {food}.
Unless {first} {vi_s} by {clock}, cancel the {vehicle}.
What a {adj} {animal} your {relative} owns!
The election on {month} {dayth} surprised {big} {jobs}.
Someone hung {small} {things} above the {adj} {place}.
Despite the fog, {title} {last} climbed toward {city}.
Perhaps {first} ought to {vt_base} the {thing} until {day}.
Whoever {vt_past} this {thing} deserves {price}.
Instead of {food}, {first} demanded {food} and {small} {things}.
"""

FINANCE = """
3*{company} {firm} reported {measure} of {millions} for the {quarter} quarter.
3*Shares of {company} {firm} {rose} {percent1} to {price}.
3*Shares of {company} {fell} {percent1} after the {event}.
2*{company} agreed to buy {company} {firm} for {millions}.
2*{measure} {rose} from {millions} to {millions}.
2*The {index} {fell} {points} points, or {percent1}.
2*The {index} {rose} {percent1} while {asset} {fell}.
{analyst} expect {measure} of {millions} in {year}.
{company} will pay a dividend of {price} per share on {month} {dayth}.
The {officer} of {company} {firm} blamed {cause}.
{company} cut {thousands} jobs because of {cause}.
The central bank lowered rates by {points} basis points.
{title} {last} became {officer} of {company} {firm}.
{analyst} warned that {cause} could hurt {asset} and {asset}.
Trading in {ticker} was halted at {clock} after the {event}.
Yields on {asset} {rose} to {percent1} on {day}.
{company} {firm} borrowed {millions} at {percent1}.
The fund holds {percent} in {asset} and {percent} in {asset}.
What did {analyst} say about the {company} {event}?
Ticker {ticker} closed at {price}, and {ticker} at {price}.
{measure} per share {fell} to {price} from {price}.
"""
